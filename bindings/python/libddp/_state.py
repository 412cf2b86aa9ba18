# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: safetensors files with the program's own names, loaded at any number of ranks."""
from __future__ import annotations

import array
import contextlib
import os
from typing import Any, BinaryIO, Callable, NamedTuple, Optional, Sequence, Union

from . import low
from ._ema import Ema
from ._errors import Error, NotSupportedError
from ._model import Model
from ._optimizer import Optimizer
from ._options import fill
from ._outer import Outer
from ._together import together


class Loaded(NamedTuple):
    """Names that a load left alone; both are empty unless it was partial."""

    missing: list[str]  #: the model, optimizer or averages have them, the checkpoint has not
    unexpected: list[str]  #: the checkpoint has them, the model has not


class State:
    """What a checkpoint holds: a model, and what else there is; `epoch` and `step` are the program's own. Of several optimizers `optimizer` is a
    sequence, in the same order for save and load.

    After a load `file` is the path on rank 0 ("" for a stream), and `skipped` says which newer files :meth:`load_latest` found that were not
    valid, and why.
    """

    def __init__(self, model: Model, optimizer: Union[Optimizer, Sequence[Optimizer], None] = None, ema: Optional[Ema] = None, *, epoch: int = 0,
                 step: int = 0, outer: Optional[Outer] = None) -> None:
        self.model, self.optimizer, self.ema, self.outer = model, optimizer, ema, outer
        self.epoch, self.step = epoch, step
        self.file, self.skipped = "", []  # type: str, list[str]

    _call = ""  # what an adapter calls its save or load; it ends the group if ranks do not come

    def _check_order(self) -> None:
        if self.model._in_other_order:
            raise NotSupportedError(f"{self.model._in_other_order} is dense, but not row-major (as with channels_last), and a file of libddp.State "
                                    "would have its axes in the order of memory: save state_dict() with torch.save()")

    def _fill(self) -> Any:
        self._check_order()
        struct = low.ddp_state()
        low.ddp_state_init(struct)
        struct.model = self.model._raw
        if isinstance(self.optimizer, Optimizer):
            struct.optimizer = self.optimizer._raw
        elif self.optimizer is not None:
            self._handles = array.array("Q", [int(each._raw) for each in self.optimizer])
            if self._handles:
                struct.optimizers, struct.optimizer_count = low.buffer_address(memoryview(self._handles)), len(self._handles)
        struct.ema = None if self.ema is None else self.ema._raw
        struct.outer = None if self.outer is None else self.outer._raw
        struct.epoch, struct.step = self.epoch, self.step
        return struct

    def save(self, place: Union[str, os.PathLike, BinaryIO, None], *, local: bool = False) -> None:
        """Save to a path, or, on rank 0, to something with write(bytes); the others may pass None. Every rank calls; no barrier is needed
        afterwards.

        With `local` this rank alone saves what it has, to something with write(bytes); refused where the optimizer is sharded over several
        ranks."""
        self.model._take()
        struct = self._fill()
        if local:
            self._save_local(struct, place)
            return
        if place is None:
            self._run("save", lambda: low.ddp_state_save(struct, None))
            return
        if isinstance(place, (str, os.PathLike)):
            self._run("save", lambda: low.ddp_state_save_file(struct, os.fspath(place)))
            return
        failed: list[BaseException] = []
        self._run("save", lambda: low.ddp_state_save(struct, _guard(_writer(place), failed)), failed)

    def _save_local(self, struct: Any, place: Any) -> None:
        if not hasattr(place, "write"):
            raise TypeError("save(local=True) takes something with write(bytes), such as open(path, 'wb')")
        failed: list[BaseException] = []
        try:
            low.ddp_state_save_local(struct, _guard(_writer(place), failed))
        except Error as error:
            if failed:
                raise failed.pop() from error
            raise

    def save_latest(self, folder: Union[str, os.PathLike], keep: int = 0) -> None:
        """Save ``step-000000001200.safetensors``, with the number in `step`, into a folder that is there, and keep the newest `keep` files
        (0: all). Every rank calls."""
        self.model._take()
        struct = self._fill()
        self._run("save_latest", lambda: low.ddp_state_save_latest(struct, os.fspath(folder), keep))

    def load_latest(self, folder: Union[str, os.PathLike], *, partial: bool = False, local: bool = False) -> Loaded:
        """Load the newest valid checkpoint of a folder that :meth:`save_latest` has filled, and set `step`, `file` and `skipped`.
        Raises :class:`NoCheckpointError` where there is none yet. Otherwise as :meth:`load`."""
        return self._load(partial, local,
                          lambda struct, options: low.ddp_state_load_latest(struct, os.fspath(folder), options))

    def load(self, place: Union[str, os.PathLike, BinaryIO, None], *, partial: bool = False, local: bool = False) -> Loaded:
        """Load from a path, or, on rank 0, from something with read(count). Every rank calls. Sets epoch and step.

        With `partial`, what only the model or only the checkpoint has is reported instead of an error. With `local` this rank alone reads,
        before commit()."""
        if place is None:
            return self._load(partial, local, lambda struct, options: low.ddp_state_load(struct, None, options))
        if isinstance(place, (str, os.PathLike)):
            return self._load(partial, local, lambda struct, options: low.ddp_state_load_file(struct, os.fspath(place), options))
        failed: list[BaseException] = []

        def read(memory: memoryview) -> int:
            data = place.read(len(memory))
            memory[: len(data)] = data
            return len(data)

        return self._load(partial, local, lambda struct, options: low.ddp_state_load(struct, _guard(read, failed), options), failed)

    def _load(self, partial: bool, local: bool, function: Callable[[Any, Any], Any], failed: Optional[list] = None) -> Loaded:
        self.model._take()  # a partial load leaves some of it
        struct = self._fill()
        options = fill(low.ddp_load_options(), low.ddp_load_options_init, {"partial": partial, "local": local})
        found: list[Any] = []
        if local and failed is None:
            found.append(function(struct, options))
        else:
            self._run("load", lambda: found.append(function(struct, options)), failed, local)
        self.model._give()
        self.model._values_written()
        report, raw = found[0], self.model._raw
        self.epoch, self.step = report.epoch, report.step
        self.file = low.ddp_model_get_loaded_file(raw)
        self.skipped = [low.ddp_model_get_skipped(raw, n) for n in range(report.skipped)]
        return Loaded([low.ddp_model_get_missing(raw, n) for n in range(report.missing)],
                      [low.ddp_model_get_unexpected(raw, n) for n in range(report.unexpected)])

    def _run(self, name: str, function: Callable[[], None], failed: Optional[list] = None, local: bool = False) -> None:
        try:
            with contextlib.nullcontext() if local else together(self.model.group, self._call or f"State.{name}()", gives_up=bool(self._call)):
                self.model._collective(lambda _: function())
        except Error as error:
            if failed:
                raise failed.pop() from error
            raise


def keep(*states: State, own: bytes = b"") -> None:
    """Keep the states of these models in the memory of the ranks: a recovery goes back to them where it would need a checkpoint otherwise,
    with up to 65,536 bytes of the program's `own`, of rank 0. Models are kept with all their optimizers and averages; all that are trained
    together go into one call, with the epoch and step of the first. Needs a group with recoverable=True. Collective."""
    if not states:
        raise ValueError("keep() needs a state")
    for state in states:
        state.model._take()
    structs = [state._fill() for state in states]
    memory = bytearray(own)
    if memory:
        structs[0].own, structs[0].own_bytes = low.buffer_address(memoryview(memory)), len(memory)
    states[0].model._collective(lambda _: low.ddp_state_keep(structs, None))


def _writer(place: BinaryIO) -> Callable[[memoryview], int]:
    def write(data: memoryview) -> int:
        place.write(bytes(data))
        return 0

    return write


def _guard(function: Callable[[memoryview], int], failed: list) -> Callable[[memoryview], int]:
    def call(memory: memoryview) -> int:
        try:
            return function(memory)
        except BaseException as error:
            failed.append(error)
            return -1

    return call
