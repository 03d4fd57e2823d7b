"""Totals of every known storage layout by arithmetic, so that many can be held against a published figure.

Agrees with ``weight_derivation.derive_groups`` by construction: both walk the same templates.
"""

from dataclasses import dataclass

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.conversion import Quantization, plain_parts
from model_catalog.dtypes import FLOAT32
from model_catalog.quantization_schemes import StoredPart
from model_catalog.weight_derivation import (
    DEFAULT_LAYOUT,
    StorageLayout,
    is_router_bias,
    is_state_parameter,
    stored_templates,
    vocabulary_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tally:
    """Bytes under the default layout, and the elements that other layouts store in another type."""

    stored_bytes: int = 0
    router_bias: int = 0
    state: int = 0
    block_scales: int = 0
    tables: int = 0
    elements: int = 0
    table_elements: int = 0


class LayoutSizes:
    """Total stored bytes of any layout by arithmetic, without deriving the groups again."""

    def __init__(self, architecture: ArchitectureSpec, quantization: Quantization | None) -> None:
        self._dtype = architecture.dtype
        self._scaled = None if quantization is None else quantization.block_scales_as("BF16")
        table = vocabulary_table(architecture)
        self._table = 0 if table is None else plain_parts(table, self._dtype)[0].stored_bytes
        self._table_elements = 0 if table is None else table.parameters
        self._mtp_layers = len(architecture.mtp_layers)
        self._main, self._mtp = self._count(architecture, quantization)

    def total_bytes(self, layout: StorageLayout) -> int:
        """Bytes that this layout stores."""
        tallies = [self._main] if layout.mtp == "none" else [self._main, self._mtp]
        narrow = self._dtype.bits // 8
        total = 0
        for tally in tallies:
            total += tally.stored_bytes
            if not layout.router_bias_f32:
                total -= tally.router_bias * (4 - narrow)
            if layout.state_f32:
                total += tally.state * (4 - narrow)
            if layout.block_scales is not None:
                total -= tally.block_scales * (4 - {"BF16": 2, "F8_E8M0": 1}[layout.block_scales])
        if layout.mtp in {"without tables", "with tables"}:
            total -= self._mtp.tables
        if layout.mtp == "with tables":
            total += 2 * self._table * self._mtp_layers
        total += self._table * layout.head_stored
        if layout.dtype is FLOAT32:
            kept = sum(tally.router_bias for tally in tallies) * 4 * layout.router_bias_f32
            kept += sum(tally.state for tally in tallies) * 4 * layout.state_f32
            total = (total - kept) * 4 // narrow + kept
        return total + layout.buffer_bytes

    def total_elements(self, layout: StorageLayout) -> int:
        """Elements of an unquantised checkpoint of this layout, as the Hub counts parameters."""
        total = self._main.elements + layout.buffer_elements + self._table_elements * layout.head_stored
        if layout.mtp != "none":
            total += self._mtp.elements
        if layout.mtp in {"without tables", "with tables"}:
            total -= self._mtp.table_elements
        if layout.mtp == "with tables":
            total += 2 * self._table_elements * self._mtp_layers
        return total

    def _count(self, architecture: ArchitectureSpec, quantization: Quantization | None) -> tuple[_Tally, _Tally]:
        main, mtp = _Tally(), _Tally()
        for component, _, template, parts in stored_templates(architecture, quantization, DEFAULT_LAYOUT):
            is_mtp = component is Component.MTP
            stored = sum(item.stored_bytes for item in parts)
            is_table = is_mtp and template.role in {Role.EMBEDDING, Role.HEAD}
            before = mtp if is_mtp else main
            after = _Tally(
                stored_bytes=before.stored_bytes + stored,
                router_bias=before.router_bias + template.parameters * is_router_bias(template),
                state=before.state + template.parameters * is_state_parameter(template),
                block_scales=before.block_scales + self._block_scales(parts),
                tables=before.tables + stored * is_table,
                elements=before.elements + template.parameters,
                table_elements=before.table_elements + template.parameters * is_table,
            )
            main, mtp = (main, after) if is_mtp else (after, mtp)
        return main, mtp

    def _block_scales(self, parts: tuple[StoredPart, ...]) -> int:
        if self._scaled is None or len(parts) < 2 or parts[0].dtype != "F8_E4M3" or parts[1].dtype != "F32":
            return 0
        return parts[1].elements if parts[1].elements > parts[1].tensors else 0
