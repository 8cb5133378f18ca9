"""CuPy's communicators over ccl's libnccl, every element checked: with_cupy.py RANKS LIBNCCL [TYPE ...], the types in
the names of CCL_NCCL_TYPES. Ranks are processes, and share GPUs where these are fewer."""
import ctypes
import os
import socket
import subprocess
import sys
import time

try:
    import cupy
    from cupy.cuda import nccl
except ImportError:
    print("SKIP: CuPy is not installed, or without NCCL")
    sys.exit(77)
try:
    gpus = cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    gpus = 0
if gpus == 0:
    print("SKIP: no GPU")
    sys.exit(77)

if "RANK" not in os.environ:
    count, library = int(sys.argv[1]), os.path.abspath(sys.argv[2])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = dict(os.environ, WORLD_SIZE=str(count), MASTER_PORT=str(port), LD_PRELOAD=library, NCCL_NVLS_ENABLE="0")
    if count > gpus:
        common["CCL_MULTI_RANK_GPU_ENABLE"] = "1"
    children = [subprocess.Popen([sys.executable, *sys.argv], env=dict(common, RANK=str(r))) for r in range(count)]
    sys.exit(max(abs(child.wait()) for child in children))

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cupy.cuda.Device(rank % gpus).use()
describe = ctypes.CDLL(None).ncclGetErrorString
describe.restype = ctypes.c_char_p
assert describe(3) == b"internal error: an error inside of ccl", "CuPy does not call ccl's libnccl"
cases = wrong = 0


def check(what, got, want):
    global cases, wrong
    cases += 1
    if not bool((got == want).all()):
        wrong += 1
        print(f"WRONG on rank {rank}: {what}: {got.flatten()[:4]}, not {want.flatten()[:4]}", flush=True)


def shared_id():
    """Returns rank 0's unique id, which it hands out by a socket."""
    port = int(os.environ["MASTER_PORT"])
    if rank == 0:
        made = nccl.get_unique_id()
        with socket.create_server(("127.0.0.1", port)) as server:
            for _ in range(ranks - 1):
                with server.accept()[0] as peer:
                    peer.sendall(made)
        return made
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), 60) as root, root.makefile("rb") as got:
                return got.read(len(nccl.get_unique_id()))
        except ConnectionRefusedError:
            time.sleep(0.1)
    sys.exit("rank 0 did not answer")


comm = nccl.NcclCommunicator(ranks, shared_id(), rank)
stream = cupy.cuda.Stream(non_blocking=True)
types = {
    "float": (cupy.float32, nccl.NCCL_FLOAT32), "half": (cupy.float16, nccl.NCCL_FLOAT16),
    "float16": (cupy.float16, nccl.NCCL_FLOAT16), "double": (cupy.float64, nccl.NCCL_FLOAT64),
    "std::int32_t": (cupy.int32, nccl.NCCL_INT32), "std::int64_t": (cupy.int64, nccl.NCCL_INT64),
    "std::uint8_t": (cupy.uint8, nccl.NCCL_UINT8), "std::int8_t": (cupy.int8, nccl.NCCL_INT8),
    "std::uint32_t": (cupy.uint32, nccl.NCCL_UINT32), "std::uint64_t": (cupy.uint64, nccl.NCCL_UINT64),
}
total = ranks * (ranks + 1) // 2
with stream:
    for name in [name for name in sys.argv[3:] if name in types] or types:
        dtype, code = types[name]
        for count in (1, 4096, 1_000_003):
            data = lambda of: ((cupy.arange(count) % 7 + 1) * (of + 1)).astype(dtype)
            mine, at = data(rank), stream.ptr
            label = f"{name} {count}"
            for op, want in ((nccl.NCCL_SUM, data(0) * dtype(total)), (nccl.NCCL_MAX, data(ranks - 1)),
                             (nccl.NCCL_MIN, data(0))):
                got = cupy.empty_like(mine)
                comm.allReduce(mine.data.ptr, got.data.ptr, count, code, op, at)
                check(f"allReduce {op} {label}", got, want)
            got = mine.copy()
            comm.bcast(got.data.ptr, count, code, ranks - 1, at)
            check(f"bcast {label}", got, data(ranks - 1))
            got = cupy.zeros_like(mine)
            comm.reduce(mine.data.ptr, got.data.ptr, count, code, nccl.NCCL_SUM, 0, at)
            check(f"reduce {label}", got, data(0) * dtype(total if rank == 0 else 0))
            got = cupy.empty(count * ranks, dtype)
            comm.allGather(mine.data.ptr, got.data.ptr, count, code, at)
            check(f"allGather {label}", got, cupy.concatenate([data(r) for r in range(ranks)]))
            got, every = cupy.empty_like(mine), cupy.tile(mine, ranks)
            comm.reduceScatter(every.data.ptr, got.data.ptr, count, code, nccl.NCCL_SUM, at)
            check(f"reduceScatter {label}", got, data(0) * dtype(total))
            got = cupy.empty_like(mine)
            nccl.groupStart()
            comm.send(mine.data.ptr, count, code, (rank + 1) % ranks, at)
            comm.recv(got.data.ptr, count, code, (rank - 1) % ranks, at)
            nccl.groupEnd()
            check(f"send and recv {label}", got, data((rank - 1) % ranks))
stream.synchronize()
comm.check_async_error()  # raises
comm.destroy()
print(f"CuPy {cupy.__version__} over libnccl: rank {rank}: {cases} cases, {wrong} wrong")
sys.exit(wrong != 0)
