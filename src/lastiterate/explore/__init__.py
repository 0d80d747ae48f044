"""A local page on which one moves a slider and sees what the guarantee does; extra `explore`."""
