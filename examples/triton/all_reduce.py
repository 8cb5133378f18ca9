"""All-reduce in one Triton kernel: blocks store to their window, meet at a barrier, and sum the peers' windows.

Build the library with CUDA on, and the functions as team_functions.cu says. Then run one process for each GPU:
    cmake --build build --target triton_team
    torchrun --nproc-per-node 2 examples/triton/all_reduce.py build/examples/libtriton_team.so ccl_team.bc
"""

import ctypes
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton.language import core

sys.path.insert(0, str(Path(__file__).parent.parent / "torch_op"))
from group import Group  # noqa: E402


def _function(name, arguments, returns):
    """Returns a function of ccl_team.bc that Triton kernels call. Triton keeps each call, also one without a use."""
    symbol = {tuple(core.dtype(type) for type in arguments): (name, core.dtype(returns))}

    def call(given, semantic):
        return core.extern_elementwise("ccl_team", "", given, symbol, is_pure=False, _semantic=semantic)

    return call


_rank = _function("ccl_team_rank", ["int64"], "int32")
_ranks = _function("ccl_team_ranks", ["int64"], "int32")
_window = _function("ccl_team_window", ["int64", "int32"], "int64")
_barrier = _function("ccl_team_barrier", ["int64", "int32", "int32"], "int32")


@core.extern
def team_rank(team, _semantic=None):
    return _rank([team], _semantic)


@core.extern
def team_ranks(team, _semantic=None):
    return _ranks([team], _semantic)


@core.extern
def team_window(team, rank, _semantic=None):
    return _window([team, rank], _semantic)


@core.extern
def team_barrier(team, block, blocks, _semantic=None):
    return _barrier([team, block, blocks], _semantic)


@triton.jit
def all_reduce(team, data, out, count, half, BLOCK: tl.constexpr):
    """`half`: bytes before the half of the window that this launch uses. Launches use the halves by turns."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    places = block * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    mine = (team_window(team, team_rank(team)) + half).to(tl.pointer_type(tl.float32))
    tl.store(mine + places, tl.load(data + places, mask), mask)
    team_barrier(team, block, blocks)
    total = tl.zeros([BLOCK], tl.float32)
    for rank in range(team_ranks(team)):
        theirs = (team_window(team, rank) + half).to(tl.pointer_type(tl.float32))
        total += tl.load(theirs + places, mask, volatile=True)
    tl.store(out + places, total, mask)


def main() -> None:
    dist.init_process_group("gloo")  # for the id alone
    block, blocks = 1024, 16
    half = block * blocks * 4
    group = Group(sys.argv[1], "team_create", ctypes.c_longlong(2 * half), blocks)
    team = group.function("team_address", [], ctypes.c_longlong)()
    count = block * blocks - 5
    data = torch.arange(count, dtype=torch.float32, device="cuda") % 1000 + group.rank
    out = torch.empty_like(data)
    wanted = (torch.arange(count, device="cuda") % 1000) * group.ranks + group.ranks * (group.ranks - 1) // 2

    def launch(call: int) -> None:
        all_reduce[(blocks,)](
            team, data, out, count, call % 2 * half, BLOCK=block, num_warps=4, extern_libs={"ccl_team": sys.argv[2]}
        )

    wrong = 0
    for call in range(100):
        launch(call)
        torch.cuda.synchronize()
        group.status()
        wrong += int((out != wanted).sum())
        data += 1
        wanted += group.ranks
    print(f"rank {group.rank} of {group.ranks}: {wrong} elements of 100 calls are wrong")
    assert wrong == 0
    group.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
