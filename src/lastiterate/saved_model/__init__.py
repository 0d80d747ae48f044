"""Models in files: the parameters and the certificate, as data that anyone can read."""
