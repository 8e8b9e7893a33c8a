"""HTML pages of runs and ensembles."""

from .live import live as live
from .page import follow as follow
from .page import page_of as page_of
from .page import show_page as show_page
from .page import write_page as write_page
