# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's operations on libddp, beside gloo's and beside loops over what the ranks give. Tested: libddp.c10d."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401  forks have it at once
import torch  # noqa: E402, F401
import torch.nn.parallel  # noqa: E402, F401

COMMON = """
import contextlib, os, time, libddp, libddp.c10d, torch, torch.distributed as dist
from datetime import timedelta
from torch.distributed import ReduceOp
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
def init(backend="libddp", **more):
    dist.init_process_group(backend, **more)
@contextlib.contextmanager
def raises(kind, *words):
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__}")
"""

# What every rank would give is known on every rank, so a loop over the ranks is the answer. Gloo is asked as well, and must agree where it has
# the operation.
BOTH = COMMON + """
init("gloo")
ours, theirs = dist.new_group(backend="libddp"), dist.group.WORLD
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16]
COPIES = FLOATS + WHOLE + [torch.bool, torch.complex64, torch.complex128]
EXACT = size == 2
def of(who, shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + who)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=generator)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator).to(dtype)
def same(found, wanted, what, exact=True):
    if exact:
        assert torch.equal(found, wanted), f"{what}: {found} is not {wanted}"
    else:
        slack = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.complex64: 1e-5,
                 torch.complex128: 1e-12}.get(found.dtype, 0)
        assert torch.allclose(found, wanted, rtol=slack, atol=slack), f"{what}: {found} is not {wanted}"
def ask(function, *arguments, group, late=False, **keywords):
    work = function(*arguments, group=group, async_op=late, **keywords)
    if late:
        work.wait()
        assert group is theirs or (work.is_completed() and work.is_success() and work.exception() is None)
def gloo_has(function, *arguments, **keywords):
    try:
        ask(function, *arguments, group=theirs, **keywords)
        return True
    except (RuntimeError, ValueError):
        return False
"""


class Operations(Test):
    def run_ranks(self, program, size=2, limit=120):
        return self.ends_well(forked(program, size=size, limit=limit))

    def test_copies_are_those_of_gloo(self):
        for size in (2, 3, 4):
            self.run_ranks(BOTH + """
for dtype in COPIES:
    for late in (False, True):
        for shape in ((5,), (), (2, 3), (0,)):
            parts = [of(who, shape, dtype) for who in range(size)]
            mine, root, what = parts[rank], size - 1, f"{dtype} {shape}"
            found = mine.clone()
            ask(dist.broadcast, found, root, group=ours, late=late)
            same(found, parts[root], "broadcast " + what)
            lists = [[torch.zeros_like(part) for part in parts] for _ in range(2)]
            for found, group in zip(lists, (ours, theirs)):
                if group is theirs and not gloo_has(dist.all_gather, found, mine):
                    continue
                ask(dist.all_gather, found, mine, group=group, late=late)
                for found_part, part in zip(found, parts):
                    same(found_part, part, "all_gather " + what)
            found = [torch.zeros_like(part) for part in parts] if rank == root else None
            ask(dist.gather, mine, found, root, group=ours, late=late)
            for found_part, part in zip(found or [], parts):
                same(found_part, part, "gather " + what)
            found = torch.zeros_like(mine)
            ask(dist.scatter, found, [part.clone() for part in parts] if rank == root else None, root, group=ours, late=late)
            same(found, mine, "scatter " + what)
            if shape == (5,):
                whole = torch.zeros(5 * size, dtype=dtype)
                ask(dist.all_gather_into_tensor, whole, mine, group=ours, late=late)
                same(whole, torch.cat(parts), "all_gather_into_tensor " + what)
                whole = torch.zeros(size, 5, dtype=dtype)
                ask(dist.all_gather_into_tensor, whole, mine, group=ours, late=late)
                same(whole, torch.stack(parts), "all_gather_into_tensor, stacked, " + what)
""", size=size)

    def test_reductions_are_those_of_gloo(self):
        for size in (2, 3, 4):
            self.run_ranks(BOTH + """
def fold(parts, op):
    if op == ReduceOp.AVG:
        total = sum(part.double() if part.dtype.is_floating_point else part for part in parts)
        return (total / size).to(parts[0].dtype)
    wide = [part.double() if part.dtype.is_floating_point else part for part in parts]
    total = wide[0].clone()
    for part in wide[1:]:
        total = {ReduceOp.SUM: torch.add, ReduceOp.PRODUCT: torch.mul, ReduceOp.MIN: torch.minimum, ReduceOp.MAX: torch.maximum,
                 ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor}[op](total, part)
    return total.to(parts[0].dtype)
PLAIN, BITS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX], [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
asked = 0
for dtype in FLOATS + WHOLE:
    for op in PLAIN + ([ReduceOp.AVG] if dtype.is_floating_point else BITS):
        late = op in (ReduceOp.SUM, ReduceOp.BOR)
        exact, what = not dtype.is_floating_point or op in (ReduceOp.MIN, ReduceOp.MAX), f"{op} {dtype}"
        parts = [of(who, (size, 3), dtype) for who in range(size)]
        wanted, root = fold(parts, op), size - 1
        found = parts[rank].clone()
        ask(dist.all_reduce, found, op, group=ours, late=late)
        same(found, wanted, "all_reduce " + what, exact)
        everybody = [torch.empty_like(found) for _ in range(size)]
        dist.all_gather(everybody, found, group=ours)
        for one in everybody:
            same(one, found, "the same bits on every rank: " + what)
        theirs_found = parts[rank].clone()
        if gloo_has(dist.all_reduce, theirs_found, op):
            asked += 1
            same(found, theirs_found, "gloo's " + what, exact or EXACT and dtype in (torch.float32, torch.float64))
        reduced = parts[rank].clone()
        ask(dist.reduce, reduced, root, op, group=ours, late=late)
        same(reduced, found if rank == root else parts[rank], "reduce " + what)
        part = torch.zeros(3, dtype=dtype)
        ask(dist.reduce_scatter, part, [row.clone() for row in parts[rank]], op, group=ours, late=late)
        same(part, found[rank], "reduce_scatter " + what)
        part = torch.zeros(3, dtype=dtype)
        ask(dist.reduce_scatter_tensor, part, parts[rank], op, group=ours, late=late)
        same(part, found[rank], "reduce_scatter_tensor " + what)
assert asked >= 25, asked
for dtype in (torch.complex64, torch.complex128):
    parts = [of(who, (4,), dtype) for who in range(size)]
    found = parts[rank].clone()
    ask(dist.all_reduce, found, group=ours)
    same(found, sum(parts), "complex", False)
for op, wanted in ((ReduceOp.SUM, [False, True, True]), (ReduceOp.PRODUCT, [False, False, True]), (ReduceOp.MAX, [False, True, True]),
                   (ReduceOp.MIN, [False, False, True]), (ReduceOp.BXOR, [False, size % 2 == 0, size % 2 == 1])):
    found = torch.tensor([False, rank > 0, True])
    ask(dist.all_reduce, found, op, group=ours)
    if op == ReduceOp.BXOR:
        wanted = [False, (size - 1) % 2 == 1, size % 2 == 1]
    assert found.tolist() == wanted, (op, found)
found = torch.full((3,), rank + 1.0)
ask(dist.all_reduce, found, dist._make_nccl_premul_sum(0.5), group=ours)
assert found.tolist() == [size * (size + 1) / 4] * 3
with raises(libddp.NotSupportedError, "BAND"):
    ask(dist.all_reduce, torch.ones(2), ReduceOp.BAND, group=ours)
""", size=size)

    def test_tensors_larger_than_a_piece_and_of_any_layout(self):
        self.run_ranks(BOTH + """
large = [of(who, (3 << 20,), torch.float32) for who in range(size)]
lists = [[torch.zeros_like(part) for part in large] for _ in range(2)]
for found, group in zip(lists, (ours, theirs)):
    dist.all_gather(found, large[rank], group=group)
for found, part in zip(lists[0], large):
    same(found, part, "all_gather of a large tensor")
found = large[rank].clone()
dist.all_reduce(found, ReduceOp.PRODUCT, group=ours)
same(found, large[0] * large[1] * large[2], "a large product", False)
found = torch.zeros(1 << 20)
dist.scatter(found, list(large[0].chunk(3)) if rank == 0 else None, 0, group=ours)
same(found, large[0].chunk(3)[rank], "scatter of a large tensor")
found = torch.zeros(1 << 20)
dist.reduce_scatter(found, list(large[rank].chunk(3)), group=ours)
same(found, sum(part.chunk(3)[rank] for part in large), "a large reduce_scatter", False)
grids = [of(who, (4, 6), torch.float32) for who in range(size)]
for change in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t.expand(2, 4, 6)[1].t()):
    mine = change(grids[rank].clone())
    dist.all_reduce(mine, group=ours)
    same(mine, change(sum(grids)), "all_reduce", False)
    mine = change(grids[rank].clone())
    dist.broadcast(mine, 1, group=ours)
    same(mine, change(grids[1]), "broadcast")
    found = [torch.zeros(4, 6) for _ in grids]
    dist.all_gather([change(one) for one in found], change(grids[rank]), group=ours)
    for one, grid in zip(found, grids):
        same(change(one), change(grid), "all_gather")
with torch.inference_mode():
    found = [torch.zeros(4, 6) for _ in grids]
    dist.all_gather(found, grids[rank], group=ours)
    same(torch.stack(found), torch.stack(grids), "inference")
uneven = [of(who, (who + 1, 2), torch.float32) for who in range(size)]
found = [torch.zeros_like(part) for part in uneven]
dist.all_gather(found, uneven[rank], group=ours)
for one, part in zip(found, uneven):
    same(one, part, "all_gather of different sizes")
found = torch.zeros(rank + 1, 2)
dist.reduce_scatter(found, [part.clone() for part in uneven], group=ours)
same(found, size * uneven[rank], "reduce_scatter of different sizes", False)
""", size=3)

    def test_coalesced_and_functional_forms(self):
        self.run_ranks(BOTH + """
import torch.distributed._functional_collectives as functional
many = [torch.full((count,), rank + 1.0) for count in (1, 7, 100, 40000)]
with dist._coalescing_manager(group=ours):
    for one in many:
        dist.all_reduce(one, group=ours)
assert all(one.tolist() == [3.0] * len(one) for one in many)
outputs, inputs = [torch.zeros(2 * count) for count in (1, 3)], [torch.full((count,), rank + 1.0) for count in (1, 3)]
with dist._coalescing_manager(group=ours, async_ops=True) as manager:
    for output, value in zip(outputs, inputs):
        dist.all_gather_into_tensor(output, value, group=ours)
manager.wait()
assert [output.tolist() for output in outputs] == [[1, 2], [1, 1, 1, 2, 2, 2]]
outputs, inputs = [torch.zeros(count) for count in (1, 3)], [torch.arange(2 * count) + 1.0 for count in (1, 3)]
with dist._coalescing_manager(group=ours):
    for output, value in zip(outputs, inputs):
        dist.reduce_scatter_tensor(output, value, group=ours)
assert [output.tolist() for output in outputs] == [[[2], [4]][rank], [[2, 4, 6], [8, 10, 12]][rank]]
with dist._coalescing_manager(group=ours, device=torch.device("cpu"), async_ops=True) as manager:
    one, other = torch.ones(3), torch.ones(2)
    dist.all_reduce(one, group=ours, async_op=True), dist.broadcast(other, 0, group=ours, async_op=True)
manager.wait()
assert one.tolist() == [2.0] * 3
value = torch.arange(4.0) + 10 * rank
assert functional.all_reduce(value, "sum", ours).tolist() == [10, 12, 14, 16]
assert functional.all_gather_tensor(value, 0, ours).tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
assert functional.reduce_scatter_tensor(value, "sum", 0, ours).tolist() == [[10, 12], [14, 16]][rank]
assert functional.all_to_all_single(value, None, None, ours).tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]][rank]
assert functional.broadcast(value, 1, ours).tolist() == [10, 11, 12, 13]
assert [one.tolist() for one in functional.all_reduce_coalesced([value, value], "avg", ours)] == [[5, 6, 7, 8]] * 2
sparse = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, 2.0], (5,), check_invariants=True)
dist.all_reduce(sparse, group=ours)
assert sparse.to_dense().tolist() == [2, 2, 2, 0, 0]
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * (10 + rank)}, group=ours)
assert [one["rank"] for one in objects] == [0, 1]
said = [{"rank": rank}] if rank else [None]
dist.broadcast_object_list(said, 1, group=ours)
assert said == [{"rank": 1}]
""")

    def test_from_each_rank_to_each(self):
        self.run_ranks(BOTH + """
for dtype in COPIES:
    rows = [of(who, (2 * size, 3), dtype) for who in range(size)]
    found = torch.zeros_like(rows[rank])
    ask(dist.all_to_all_single, found, rows[rank], group=ours, late=True)
    same(found, torch.cat([part[2 * rank:2 * rank + 2] for part in rows]), f"all_to_all_single {dtype}")
def gives(source, target):
    return (2 * source + target) % 4
rows = [of(who, (sum(gives(who, target) for target in range(size)), 2), torch.float32) for who in range(size)]
found = torch.zeros(sum(gives(source, rank) for source in range(size)), 2)
beside = torch.zeros_like(found)
splits = [gives(source, rank) for source in range(size)], [gives(rank, target) for target in range(size)]
dist.all_to_all_single(found, rows[rank], *splits, group=ours)
dist.all_to_all_single(beside, rows[rank], *splits, group=theirs)
same(found, beside, "uneven")
values = [of(10 * rank + target, (target + 1, 50000), torch.float32) for target in range(size)]
found = [torch.zeros(rank + 1, 50000) for _ in range(size)]
dist.all_to_all(found, values, group=ours)
for source, one in enumerate(found):
    same(one, of(10 * source + rank, (rank + 1, 50000), torch.float32), "all_to_all")
found = [torch.zeros(50000, rank + 1).t() for _ in range(size)]          # strided tensors
dist.all_to_all(found, [value.t().contiguous().t() for value in values], group=ours)
for source, one in enumerate(found):
    same(one, of(10 * source + rank, (rank + 1, 50000), torch.float32), "all_to_all of strided tensors")
with raises(libddp.MismatchError, "rank 0 gives rank 1"):
    wrong = [1 + (rank == 1), 1, 1]
    dist.all_to_all_single(torch.zeros(sum(wrong)), torch.zeros(3), wrong, [1, 1, 1], group=ours)
dist.barrier(group=ours)
""", size=3)

    def test_autograd_is_told(self):
        """A tensor that autograd keeps for backward was overwritten: an error, and no wrong gradient. PyTorch's own backends say so of some
        operations."""
        self.ends_well(forked(COMMON + """
init()
def kept_over(call, writes=True):
    x, w = torch.ones(4), torch.ones(4, requires_grad=True)
    y = (w * x).sum()
    call(x)
    if writes:
        with raises(RuntimeError, "modified by an inplace operation"):
            y.backward()
    else:
        y.backward()
one = torch.ones(4)
kept_over(dist.all_reduce)
kept_over(lambda x: dist.all_reduce(x, async_op=True).wait())
kept_over(lambda x: dist.broadcast(x, 0), rank != 0)
kept_over(lambda x: dist.all_gather([x, torch.ones(4)], one))
kept_over(lambda x: dist.all_gather([torch.ones(4), torch.ones(4)], x), False)
kept_over(lambda x: dist.all_gather_into_tensor(x, torch.ones(2)))
kept_over(lambda x: dist.reduce_scatter(x, [one, one]))
kept_over(lambda x: dist.scatter(x, [one, one] if rank == 0 else None))
kept_over(lambda x: dist.all_to_all_single(x, one))
kept_over(lambda x: dist.send(x, 1) if rank == 0 else dist.recv(x, 0), rank == 1)
dist.barrier()
"""))

    def test_messages(self):
        self.run_ranks(COMMON + """
init()
peers = [one for one in range(size) if one != rank]
for count in (0, 1, 65536, 1 << 18, (1 << 18) + 1, 1 << 20):
    incoming = {one: torch.zeros(count) for one in peers}                # everybody sends to everybody, in any order
    works = [dist.isend(torch.full((count,), 10.0 * rank + one), one) for one in peers]
    works += [dist.irecv(incoming[one], one) for one in reversed(peers)]
    for work in works:
        work.wait()
    for one in peers:
        assert incoming[one].tolist()[:3] == [10.0 * one + rank] * min(3, count)
if rank == 0:                                                            # tags choose, whatever comes first
    for one in peers:
        first, second = torch.zeros(2), torch.zeros(300000)
        dist.recv(second, one, tag=2), dist.recv(first, one, tag=1)
        assert first[0] == one and second[-1] == -one
    seen = []
    for _ in range(2 * len(peers)):
        value = torch.zeros(1, dtype=torch.int64)
        seen.append(dist.recv(value))
        assert value.item() == seen[-1]
    assert sorted(seen) == sorted(2 * peers)
else:
    dist.send(torch.full((2,), float(rank)), 0, tag=1), dist.send(torch.full((300000,), -float(rank)), 0, tag=2)
    for _ in range(2):
        dist.send(torch.tensor([rank]), 0)
dist.barrier()
grid = torch.zeros(3, 4).t() if rank == 0 else torch.arange(12.0).view(3, 4).t()
if rank == 0:
    dist.recv(grid, 1)
    assert grid.t().flatten().tolist() == list(range(12)), "strided tensors"
elif rank == 1:
    dist.send(grid, 0)
ring = [dist.P2POp(dist.isend, torch.full((5,), float(rank)), (rank + 1) % size)]
found = torch.zeros(5)
for work in dist.batch_isend_irecv([*ring, dist.P2POp(dist.irecv, found, (rank - 1) % size)]):
    work.wait()
assert found.tolist() == [float((rank - 1) % size)] * 5
if rank == 0:
    dist.send(torch.zeros(3), 1), dist.barrier()
    with raises(libddp.InvalidArgumentError, "the receive there is for 1600000 bytes"):
        dist.send(torch.zeros(300000), 1)
else:
    if rank == 1:
        with raises(libddp.InvalidArgumentError, "the receive is for 8 bytes", "rank 0 sends 12 bytes"):
            dist.recv(torch.zeros(2), 0)
    dist.barrier()
    if rank == 1:
        with raises(libddp.InvalidArgumentError, "the receive is for 1600000 bytes", "rank 0 sends 1200000 bytes"):
            dist.recv(torch.zeros(400000), 0)
dist.barrier()
with raises(libddp.InvalidArgumentError, "itself"):
    dist.isend(torch.zeros(1), rank)
dist.destroy_process_group()
""", size=3)


if __name__ == "__main__":
    main()
