"""The result of a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core import columns, pictures
from ..core.errors import InputError
from ..core.scene import Scene
from ..core.status import Status
from ..core.types import ArrayLike, Numbers, Real
from ..mechanics.abstract import AbstractSystem
from ..methods.base import AbstractMethod
from ..trace.compiled import compiled
from .arguments import select
from .dense import Interpolant
from .events import EventRecord
from .loop import Loop
from .rows import AbstractRows
from .stepper import Consts, Stepper

ROWS_AT_ONCE = 1 << 16  # of many trajectories together

__all__ = [
    "Solution",
    "as_dataset",
    "constraint_of",
    "energy_of",
    "hidden_of",
    "map_lanes",
    "map_rows",
    "multipliers_of",
]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Solution(AbstractRows):
    """Saved rows of a run, and the quantities computed from them.

    `t`, `q`, `p` have the row as their first axis; row 0 is the start. `multipliers` is `Lambda(q, p)` for every
    method; `step_multipliers` holds those the steps solved for, by name. `observables` are the user's, computed in
    the loop.
    """

    loop: Loop
    load: Callable[[], dict[str, np.ndarray]]
    status: Status
    stats: dict[str, Any]
    final_q: np.ndarray
    final_p: np.ndarray
    final_t: float
    events: list[EventRecord]
    interpolant: Interpolant | None = None

    @property
    def system(self) -> AbstractSystem:
        return self.loop.system

    @property
    def method(self) -> AbstractMethod:
        return self.loop.method

    @property
    def scene(self) -> Scene | None:
        """The scene for pictures of the run."""
        return self.loop.scene

    @property
    def name(self) -> str:
        """The name of the problem, if there is one."""
        return self.loop.name

    @functools.cached_property
    def multipliers(self) -> np.ndarray:
        """`Lambda(q, p)` at the saved times."""
        if "multipliers" in self.rows:
            return self.rows["multipliers"]
        return map_rows(multipliers_of, self.system, self.q, self.p, self.t)

    def constraint_forces(self) -> dict[str, np.ndarray]:
        """The force of each named constraint on each coordinate, `-G^T lambda` at the saved times.

        Keys are the names given to the constraints (`hx.Distance(..., name="rod")`, or the keys of a dict); a row
        without a name has an entry of its own, `constraint 3`. If rows depend on each other and the method accepts
        that (`redundant="min-norm"`), the forces are those of the multipliers of least norm.
        """
        if not self.system.has_constraints:
            return {}
        forces = map_rows(_constraint_forces, self.system, self.q, self.p, self.t)
        return {row.key: forces[row.key] for row in self.system.constraint_rows(self.q[0])}  # jit sorts the keys

    def energy(self) -> np.ndarray:
        """H at the saved times."""
        return map_rows(energy_of, self.system, self.q, self.p, self.t)

    def energy_error(self) -> np.ndarray:
        """`H(t) - H(0)`, one value per row.

        This is an error only if the exact motion conserves H. With applied forces, time-dependent potentials or moving
        constraints it is the change of the energy, and `energy_balance_error` is the error.
        """
        energy = self.energy()
        return energy - energy[0]

    @property
    def energy_title(self) -> str:
        """The title of `energy_error`: "energy error", or "energy change" if the exact motion does not conserve H."""
        kept = self.system.keeps_energy and not self.method.stochastic
        return "energy error" if kept else "energy change"

    def energy_balance_error(self) -> np.ndarray:
        """`H(t) - H(0)` minus the work done until t, one value per row: zero for the exact motion.

        Work is the integral of `system.power` (applied force, potential in time, moving constraints) through the saved
        rows by a cubic spline, whose own error falls with the fourth power of the gap between rows: save every step.
        Without work it equals `energy_error`. It does not apply to thermostats, because their heat is not counted.
        """
        if self.method.stochastic:
            raise InputError(f"{self.method.name} exchanges heat, which the energy balance does not count")
        if self.system.keeps_energy:
            return self.energy_error()
        return self.energy_error() - integrate_rows(self.t, map_rows(power_of, self.system, self.q, self.p, self.t))

    def constraint_error(self) -> np.ndarray:
        """`max|g(q)|`, one value per row (zeros for an unconstrained system)."""
        return map_rows(constraint_of, self.system, self.q, self.p, self.t)

    def hidden_constraint_error(self) -> np.ndarray:
        """`max|G M^-1 p|`, one value per row (zeros for an unconstrained system)."""
        return map_rows(hidden_of, self.system, self.q, self.p, self.t)

    def at(self, t: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """`(q, p)` at any time inside the run; needs `dense=True`."""
        from .dense import evaluate

        return evaluate(self, t)

    def _source(self) -> Any:
        source = None if self.loop.problem is None else self.loop.problem.source
        if source is None:
            raise InputError("joints need a run of the problem of a mechanism: hx.simulate(m.problem(), ...)")
        return source

    def joint(self, name: str) -> Any:
        """A joint of the mechanism along this run: `sol.joint("elbow").angle`, `distance`, `rate`, `force`."""
        return self._source().joint_along(name, self)

    def to_xarray(self, *, joints: bool = False) -> Any:
        """An `xarray.Dataset` with the coordinate t and the names of `holonomix.core.columns`, as in a store.

        For runs of a mechanism, `joints=True` adds `joint_position` and `joint_rate`, by joint name, and
        `frame_position`, by body and frame name.
        """
        data = as_dataset(
            columns.visible(self.rows) | {"multipliers": self.multipliers},
            (columns.TIME,),
            {"method": self.method.name, "status": self.status.name, **self.stats},
        )
        data = data.assign_coords(self._named_axis())
        rows = self.system.constraint_rows(self.q[0])
        named = any(row.name is not None for row in rows)
        data = data.assign_coords(constraint=[str(row) for row in rows]) if named else data
        return self._source().add_to_dataset(data, self) if joints else data

    def save(
        self,
        path: str | PathLike[str],
        *,
        every: int = 1,
        species: str | Sequence[str] | None = None,
        dimension: int | None = None,
        cell: ArrayLike | None = None,
    ) -> Any:
        """Write every `every`-th row as `.npz`, `.csv`, `.xyz` or `.extxyz`, by file extension, and return the path.

        For the last two: `species` is one element for all particles, or one per particle (`["O", "H", "H"]` or
        `"O,H,H"`); `dimension` the number of coordinates per particle of a flat q; `cell` a periodic cell, three
        lengths or a 3 x 3 matrix with one vector per row. Species and cell default to those of the scene, which
        `Problem.from_ase` sets, else to "X" and none.

        For a resumable run use a store instead: `simulate(..., store="run1")`.
        """
        from .io.formats import save_rows

        if species is None:
            species = pictures.atoms.species_of(self.scene, len(self.q[0])) or "X"
        if cell is None and self.scene is not None and self.scene.cell:
            cell = np.reshape(self.scene.cell, (3, 3))
        return save_rows(self.to_xarray(), path, every=every, species=species, dimension=dimension, cell=cell)

    def to_ase(self, every: int = 1) -> list[Any]:
        """Every `every`-th row as an `ase.Atoms` with momenta, masses, the cell, and the time in `info["time"]`.

        They have no constraints of ASE: `get_temperature` counts three degrees of freedom per atom.
        """
        return pictures.atoms.to_ase(self, every)

    def plot(self, **options: Any) -> Any:
        """A figure of the trajectory and of the errors of energy and constraints; notebooks show it."""
        return pictures.plotting.plot_solution(self, **options)

    def phase(self, first: int | str = 0, second: int | str | None = None) -> Any:
        """A figure of one coordinate against another, or against its own momentum.

        A coordinate is a name or the index of an entry of q. `second=None` takes the momentum of the same entry.
        """
        return pictures.plotting.plot_phase(self, first, second)

    def animate(self, path: str | PathLike[str], *, frames: int = 150, fps: int = 25, **options: Any) -> Any:
        """Write the motion as a file, `.gif` (or `.mp4` where ffmpeg is installed), and return its path.

        Frames are equally spaced in time, the nearest saved row each.
        """
        return pictures.plotting.animate(self, path, frames=frames, fps=fps, **options)

    def view(
        self,
        path: str | PathLike[str] | None = None,
        *,
        open: bool | None = None,
        certificate: Any = None,
        live: bool = False,
    ) -> Any:
        """Write the run as an HTML page and return its path; without `path`, the page is also opened,
        in a notebook below the cell.

        A `certificate` of the method becomes a tab of the page. With `live=True` the page also contains the compiled
        step, and a button that runs it (`hx.live`).
        """
        return pictures.viewer.show_page(self, path, open=open, certificate=certificate, live=live)

    def _repr_html_(self) -> str:
        return pictures.plotting.solution_html(self)

    def __repr__(self) -> str:
        return (
            f"Solution({self.method.name}, {len(self.t)} rows, t = {self.t[0]:g} .. {self.final_t:g}, "
            f"{self.stats['steps']} steps, {self.status.name}, backend {self.stats['backend']})"
        )


def as_dataset(rows: dict[str, np.ndarray], lead: tuple[str, ...], about: dict[str, Any]) -> Any:
    """Columns as an `xarray.Dataset` whose variables have the axes `lead` before their own."""
    import xarray

    data = {}
    for key, x in rows.items():
        own = lead if x.ndim >= len(lead) else lead[-x.ndim :]
        data[columns.name_of(key)] = (columns.row_dims(key, x.shape, *own), x)
    attributes = {k: v for k, v in about.items() if isinstance(v, (int, float, str))}
    return xarray.Dataset(data, attrs=attributes).set_coords([name for name in lead if name in data])


def energy_of(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.hamiltonian(q, p, t)


def power_of(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.power(q, p, t)


def integrate_rows(t: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The integral from the first row to each row, by a cubic spline (the trapezoidal rule for less than four rows)."""
    from scipy.interpolate import CubicSpline

    t, values, order = np.asarray(t, float), np.asarray(values, float), 1 if t[-1] >= t[0] else -1
    if len(t) < 4 or not np.all(np.isfinite(values)) or not np.all(np.diff(order * t) > 0):
        return np.append(0.0, np.cumsum(np.diff(t) * (values[1:] + values[:-1]) / 2))
    return order * CubicSpline(order * t, values).antiderivative()(order * t)


def constraint_of(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return jnp.max(jnp.abs(system.constraint(q, t))) if system.has_constraints else jnp.zeros(())


def hidden_of(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return jnp.max(jnp.abs(system.hidden_constraint(q, p, t))) if system.has_constraints else jnp.zeros(())


def _constraint_forces(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.constraint_forces(q, p, t)


def multipliers_of(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.multipliers(q, p, t)


def _each(fn: Callable[..., Any], rows: PyTree) -> Any:
    """`fn` of every row; on a CPU one row after the other.

    In a vectorized loop, the last bits of a row would depend on its place.
    """
    return jax.lax.map(fn, rows) if jax.default_backend() == "cpu" else jax.vmap(fn)(rows)


@compiled
def _mapped(fn: Callable[..., Any], system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return _each(lambda x: fn(system, *x), (q, p, t))


def map_rows(fn: Callable[..., Any], system: AbstractSystem, q: np.ndarray, p: np.ndarray, t: np.ndarray) -> Any:
    """`fn(system, q, p, t)`, an array or a tree of arrays, for every row, in blocks of bounded memory.

    The bits of a row do not depend on the others: the ends of chunks depend on the clock, and results must not.
    """
    rows, size = len(t), 512 if q[0].size <= 256 else 64 if q[0].size <= 4096 else 4
    parts = []
    for k in range(0, rows, size):
        block = [x[k : k + size] for x in (q, p, t)]
        short = size - len(block[0])
        if short:
            block = [np.concatenate([x, np.repeat(x[-1:], short, axis=0)]) for x in block]
        found = _mapped(fn, system, *map(jnp.asarray, block))
        parts.append(jax.tree.map(np.asarray, found))
    return jax.tree.map(lambda *x: np.concatenate(x)[:rows], *parts)


@compiled
def _mapped_lanes(
    fn: Callable[..., Any],
    stepper: Stepper,
    consts: Consts,
    axes: Consts | None,
    lanes: Numbers,
    q: Numbers,
    p: Numbers,
    t: Numbers,
) -> Any:
    def one(x: tuple[Numbers, ...]) -> Any:
        lane, *rows = x
        system = stepper.parts(select(consts, axes, lane))[0]
        return _each(lambda row: fn(system, *row), tuple(rows))

    return _each(one, (lanes, q, p, t))


def map_lanes(fn: Callable[..., Any], loop: Loop, q: np.ndarray, p: np.ndarray, t: np.ndarray) -> np.ndarray:
    """`fn(system, q, p, t)` on rows (trajectory, row, ...), each trajectory with its own parameters."""
    if loop.shared_system:
        flat = map_rows(fn, loop.system, *(x.reshape(-1, *x.shape[2:]) for x in (q, p, t)))
        return flat.reshape(*t.shape, *flat.shape[1:])
    size, parts = max(1, ROWS_AT_ONCE // t.shape[1]), []
    for k in range(0, len(q), size):
        lanes = np.arange(k, min(k + size, len(q)))
        rows = (jnp.asarray(x[lanes]) for x in (q, p, t))
        found = _mapped_lanes(fn, loop.stepper, loop.consts, loop.axes, jnp.asarray(lanes), *rows)
        parts.append(np.asarray(found))
    return np.concatenate(parts)
