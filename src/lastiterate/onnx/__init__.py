"""Fitted models as ONNX files, which predict without this library."""

from lastiterate.errors import MissingExtra

try:
    from lastiterate.onnx.export import export
except ImportError as error:
    raise MissingExtra.of(error, "lastiterate.onnx", extra="onnx") from error

__all__ = ["export"]
