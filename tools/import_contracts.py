"""Contract type of import-linter: modules may import only the named third-party packages.

`forbidden` needs a list of everything that is not allowed; a new dependency would pass unseen. This one fails on any
external package that is neither in the standard library nor in `allowed_packages`.
"""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowedPackagesContract(Contract):  # type: ignore[misc]
    """Third-party packages that `source_modules` and their descendants import, compared with an allow list."""

    source_modules = fields.ListField(subfield=fields.ModuleField())
    allowed_packages = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        root = self.session_options["root_packages"][0]
        broken = []
        for source in self.source_modules:
            for module in sorted({source.name} | graph.find_descendants(source.name)):
                for imported in sorted(graph.find_modules_directly_imported_by(module)):
                    package = imported.partition(".")[0]
                    if package not in sys.stdlib_module_names | {root} | self.allowed_packages:
                        broken.append(f"{module} imports {package}")
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)
