"""Import contract of the pure floors: a short list of allowed imports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class PureFloor(Contract):
    """Contract that allows a floor's own modules, listed ones and harmless standard ones.

    The built-in ``forbidden`` contract lists forbidden modules, so a new dependency would pass;
    this one lists the allowed modules.
    """

    # The base class replaces each field by the configured list.
    floors: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]
    allowed: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]
    forbidden_standard: list[str] = fields.ListField(  # type: ignore[assignment]
        subfield=fields.StringField()
    )

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001
        """Return whether every import of every floor is allowed, and those that are not."""
        root = self.session_options["root_packages"][0]
        offences = [
            (importer, imported)
            for floor in self.floors
            for importer in _modules(graph, f"{root}.{floor}")
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not self._may_import(f"{root}.{floor}", imported)
        ]
        return ContractCheck(kept=not offences, metadata={"offences": offences})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that is not allowed."""
        for importer, imported in check.metadata["offences"]:
            output.print_error(f"{importer} must not import {imported}")
        output.new_line()

    def _may_import(self, floor: str, imported: str) -> bool:
        if _within(imported, floor):
            return True
        if imported.partition(".")[0] in sys.stdlib_module_names:
            return not any(_within(imported, name) for name in self.forbidden_standard)
        return any(_within(imported, name) for name in self.allowed)


def _modules(graph: ImportGraph, package: str) -> list[str]:
    if package not in graph.modules:
        return []
    return sorted({package, *graph.find_descendants(package)})


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
