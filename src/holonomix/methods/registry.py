"""Every method with its declared traits: one table behind the docs, the command line and the tests."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

from ..core.lazy import stub_names
from .base import AbstractMethod, Traits


@dataclasses.dataclass(frozen=True)
class Entry:
    """`make()` builds an instance with default settings; `variants` are more instances whose traits are measured."""

    name: str
    make: Callable[..., AbstractMethod]
    variants: tuple[Callable[[], AbstractMethod], ...] = ()

    @property
    def default(self) -> AbstractMethod:
        return self.make()

    @property
    def traits(self) -> Mapping[str, Traits]:
        return self.default.traits

    @property
    def reference(self) -> str:
        return self.default.reference

    @property
    def family(self) -> str:
        return self.default.family

    @property
    def summary(self) -> str:
        text = (self.make.__doc__ or "").strip()
        return text.split("\n")[0] if text else ""


FAMILIES: dict[str, tuple[str, ...]] = {}  # module -> names of its methods, read from the stub
for _name, (_module, _) in stub_names(str(Path(__file__).with_name("__init__.py"))).items():
    if _module not in ("base", "registry", "tableaus"):
        FAMILIES[_module] = (*FAMILIES.get(_module, ()), _name)


def registry() -> dict[str, Entry]:
    """Name -> `Entry`, in the order of the documentation."""
    entries: dict[str, Entry] = {}
    for module_name, names in FAMILIES.items():
        module = importlib.import_module(f".{module_name}", __package__)
        variants = getattr(module, "VARIANTS", {})
        for name in names:
            entries[name] = Entry(name, getattr(module, name), tuple(variants.get(name, ())))
    return entries
