"""PyTorch's NCCL backend over ccl's libnccl, every element checked: with_torch.py RANKS LIBNCCL [TYPE ...], the
types in the names of CCL_NCCL_TYPES. Ranks share GPUs where these are fewer."""
import ctypes
import os
import socket
import subprocess
import sys

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("SKIP: PyTorch is not installed")
    sys.exit(77)
if not torch.cuda.is_available():
    print("SKIP: no GPU")
    sys.exit(77)

if "RANK" not in os.environ:
    count, library = int(sys.argv[1]), os.path.abspath(sys.argv[2])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = dict(
        os.environ, WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LD_PRELOAD=library,
        NCCL_NVLS_ENABLE="0")
    if count > torch.cuda.device_count():
        common["CCL_MULTI_RANK_GPU_ENABLE"] = "1"
    children = [
        subprocess.Popen([sys.executable, *sys.argv], env=dict(common, RANK=str(r), LOCAL_RANK=str(r)))
        for r in range(count)
    ]
    sys.exit(max(abs(child.wait()) for child in children))

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.cuda.set_device(device)
# PyTorch also loads its own libnccl; it calls the one that was loaded first.
describe = ctypes.CDLL(None).ncclGetErrorString
describe.restype = ctypes.c_char_p
assert describe(3) == b"internal error: an error inside of ccl", "PyTorch does not call ccl's libnccl"
dist.init_process_group("nccl", device_id=device if os.environ.get("EAGER") else None)
cases = wrong = 0


def check(what, got, want):
    global cases, wrong
    cases += 1
    if not torch.equal(got, want):
        wrong += 1
        print(f"WRONG on rank {rank}: {what}: {got.flatten()[:4].tolist()}, not {want.flatten()[:4].tolist()}", flush=True)


def data(of, count, dtype):
    return ((torch.arange(count, device=device) % 7 + 1) * (of + 1)).to(dtype)


total = ranks * (ranks + 1) // 2
types = {
    "float": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "double": torch.float64,
    "std::int32_t": torch.int32, "std::int64_t": torch.int64, "std::uint8_t": torch.uint8, "std::int8_t": torch.int8,
}
for dtype in [types[name] for name in sys.argv[3:] if name in types] or types.values():
    for count in (1, 4096, 1000003 if dtype == torch.float32 else 65537):
        mine, first = data(rank, count, dtype), data(0, count, dtype)
        for op, want in ((dist.ReduceOp.SUM, first * total), (dist.ReduceOp.MAX, data(ranks - 1, count, dtype)),
                         (dist.ReduceOp.MIN, first)):
            x = mine.clone()
            dist.all_reduce(x, op)
            check(f"all_reduce {op} {dtype} {count}", x, want)
        x = mine.clone()
        dist.broadcast(x, ranks - 1)
        check(f"broadcast {dtype} {count}", x, data(ranks - 1, count, dtype))
        x = mine.clone()
        dist.reduce(x, 0)
        check(f"reduce {dtype} {count}", x if rank == 0 else mine, first * total if rank == 0 else mine)
        x = torch.empty(count * ranks, dtype=dtype, device=device)
        dist.all_gather_into_tensor(x, mine)
        check(f"all_gather {dtype} {count}", x, torch.cat([data(r, count, dtype) for r in range(ranks)]))
        x = torch.empty(count, dtype=dtype, device=device)
        dist.reduce_scatter_tensor(x, mine.repeat(ranks))
        check(f"reduce_scatter {dtype} {count}", x, first * total)
        x = torch.empty(count * ranks, dtype=dtype, device=device)
        dist.all_to_all_single(x, torch.cat([data(rank + r, count, dtype) for r in range(ranks)]))
        check(f"all_to_all {dtype} {count}", x, torch.cat([data(rank + r, count, dtype) for r in range(ranks)]))

x = data(rank, 1000, torch.float32)
dist.all_reduce(x, dist.ReduceOp.AVG)
check("average", x, data(0, 1000, torch.float32) * total / ranks)
x = data(rank, 1000, torch.float32)
dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
check("scalar before the sum", x, data(0, 1000, torch.float32) * total / 2)
# Lists of tensors of several sizes, counts that differ, messages.
sizes = [torch.empty(3 + r, device=device) for r in range(ranks)]
dist.all_gather(sizes, torch.full((3 + rank,), float(rank), device=device))
check("all_gather of several sizes", torch.cat(sizes), torch.cat([torch.full((3 + r,), float(r), device=device) for r in range(ranks)]))
into = torch.empty((rank + 1) * ranks, device=device)
dist.all_to_all_single(into, torch.full((total,), float(rank), device=device), [rank + 1] * ranks, [r + 1 for r in range(ranks)])
check("all_to_all of several counts", into, torch.arange(ranks, device=device).repeat_interleave(rank + 1).float())
if ranks > 1:
    sent, got = data(rank, 5000, torch.float32), torch.empty(5000, device=device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]):
        work.wait()
    check("messages at once", got, data((rank - 1) % ranks, 5000, torch.float32))
    if rank == 0:
        dist.send(sent, 1)
    elif rank == 1:
        dist.recv(got, 0)
        check("a message", got, data(0, 5000, torch.float32))
# Calls in a group, a group of some ranks, objects.
with dist._coalescing_manager(device=device, async_ops=True) as together:
    several = [data(rank, 100 + i, torch.float32) for i in range(20)]
    for x in several:
        dist.all_reduce(x)
together.wait()
for i, x in enumerate(several):
    check("calls that go together", x, data(0, 100 + i, torch.float32) * total)
evens = dist.new_group(list(range(0, ranks, 2)))
if rank % 2 == 0:
    x = torch.ones(10, device=device)
    dist.all_reduce(x, group=evens)
    check("a group", x, torch.full((10,), float((ranks + 1) // 2), device=device))
said = [None] * ranks
dist.all_gather_object(said, {"rank": rank, "text": "x" * rank})
cases += 1
wrong += said != [{"rank": r, "text": "x" * r} for r in range(ranks)]
# Graph that is replayed.
static = data(rank, 3000, torch.float32)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, capture_error_mode="thread_local"):
    dist.all_reduce(static)
static.copy_(data(rank, 3000, torch.float32))
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
check("a graph", static, data(0, 3000, torch.float32) * total * ranks * ranks)
# Steps of data-parallel training must give all ranks the same parameters.
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(32, 256, device=device)).square().mean().backward()
    optimizer.step()
mine = torch.cat([p.detach().flatten() for p in model.parameters()])
everyones = torch.empty(ranks * mine.numel(), device=device)
dist.all_gather_into_tensor(everyones, mine)
for r in range(ranks):
    check("parameters after training", everyones[r * mine.numel():(r + 1) * mine.numel()], mine)
dist.barrier()
torch.cuda.synchronize()
dist.destroy_process_group()
print(f"rank {rank} of {ranks}: PyTorch over ccl's libnccl: {cases} cases, {wrong} wrong", flush=True)
sys.exit(wrong != 0)
