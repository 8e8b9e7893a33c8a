"""A run as a page for the browser."""

from .page import write_page

__all__ = ["write_page"]
