#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>
#include <array>

namespace ccl::detail {
namespace {

using enum SettingKind;
constexpr bool nccl = true;

constexpr Index any = 0;
// Sorted by name.
constexpr std::array table{
    Setting{"ALGO", text, "", nccl,
            "algorithms to choose from: a list of names, or ^ and a list to leave out; "
            "allreduce:list for one collective, lists parted by semicolons. Collectives that only "
            "move messages between pairs of ranks are asked only where a list names them"},
    Setting{"BOOTSTRAP_KEEPALIVE", integer, "20", false,
            "seconds of silence after which the host of a neighbor is probed, each second; it is "
            "lost if it does not answer for half as long, and at least for 2 s",
            1, 3600},
    Setting{"BUFFSIZE", bytes, "", nccl,
            "bytes of a wire's buffer in Simple, all its slots together; by default the "
            "composition's choice",
            4096, Index{1} << 31},
    Setting{
        "CGA_CLUSTER_SIZE", integer, "4", nccl,
        "blocks of a thread block cluster in a launch of 16 blocks or more on GPUs of sm_90 to "
        "sm_110, if all communicators on the GPU leave room for it; the blocks of a cluster stand "
        "in one part of the GPU (GPC), and clusters are spread over the parts; 0 and 1: no "
        "clusters",
        0, 8},
    Setting{
        "CHECK", flag, "0", false,
        "1: compare operation, count, type and root between ranks before each collective, and the "
        "lengths of messages at their two ends; on GPUs, that buffers are memory that kernels can "
        "use"},
    Setting{"CMA_ENABLE", integer, "1", false,
            "1: a CPU rank copies long parts of a message from the memory of the sender's process "
            "(process_vm_readv) where shared memory is slower, because the cores of both share no "
            "cache; 2: always; 0: never",
            0, 2},
    Setting{"COLLNET_ENABLE", flag, "0", nccl,
            "1: a network that reduces between hosts is allowed, by a plug-in of CCL_NET_PLUGIN"},
    Setting{"COLLNET_NODE_THRESHOLD", integer, "2", nccl,
            "hosts from which on such a network is used", 1, 1 << 20},
    Setting{"COMM_BLOCKING", integer, "-1", nccl,
            "in libnccl.so.2, 0: no call of a communicator blocks; 1: calls block; -1: as the "
            "program's configuration says",
            -1, 1},
    Setting{"COMM_ID", text, "", nccl,
            "host:port where rank 0 listens for the others while ranks find each other; "
            "[address]:port for IPv6"},
    Setting{"CONNECTION_IDLE", seconds, "0", false,
            "seconds without a message after which Pairwise on CPU ranks closes the connections "
            "of a pair of ranks, which the next message opens again; the longest of any rank "
            "counts, and 0 of one rank: never. GPU ranks: seconds without a step after which a "
            "sender disconnects from a rank over TCP or RDMA"},
    Setting{
        "CROSS_NIC", integer, "2", nccl,
        "0: rings leave a host by the NIC by which they enter it, and messages by the NIC of "
        "the receiver's rail; 1: they may leave by another; 2: only where that is faster, or else "
        "data would cross a CPU",
        0, 2},
    Setting{"CTA_POLICY", text, "", nccl,
            "in libnccl.so.2, policy of communicators: DEFAULT, EFFICIENCY or ZERO, several with a "
            "vertical bar between them, or the sum of their numbers 0, 1 and 2; EFFICIENCY halves "
            "the blocks of launches, ZERO leaves calls in windows to copy engines; by default as "
            "the program's configuration says"},
    Setting{"CUMEM_ENABLE", flag, "1", nccl,
            "0: share GPU memory by legacy IPC handles instead of cuMem handles"},
    Setting{"DEBUG", word, "WARN", nccl, "how much is logged", any, any,
            "NONE VERSION WARN ATTN INFO ABORT TRACE"},
    Setting{"DEBUG_FILE", text, "stderr", nccl,
            "where the log goes: stderr, stdout or a path; %h becomes the host's name, %p the "
            "process id"},
    Setting{"DEBUG_SUBSYS", text, "INIT,BOOTSTRAP,ENV", nccl,
            "subsystems logged at INFO and TRACE: a list of INIT BOOTSTRAP COLL P2P SHM NET GRAPH "
            "TUNING ENV ALLOC PROXY ALL; ^ and a list: all but these"},
    Setting{"DETERMINISTIC", flag, "0", false,
            "1: in libnccl.so.2, reductions have one order of additions, so that the same values "
            "give the same bits in calls of any size, run and rank"},
    Setting{"DIRECT_MAP", flag, "1", false,
            "0: peers never map buffers of this rank, as they do for Direct; messages then go "
            "through scratch memory, except into windows"},
    Setting{"DMABUF_ENABLE", flag, "1", nccl, "0: RDMA devices do not reach GPU memory by DMA-BUF"},
    Setting{"DUMP_DIR", text, "", false,
            "folder in which each rank writes its flight record when its communicator fails, and "
            "on the signal of CCL_REPORT_SIGNAL; empty: none"},
    Setting{"ENABLE_VERSION_CHECK", flag, "1", nccl,
            "0: libnccl.so.2 answers ncclCommQueryProperties also for programs that were built for "
            "a later version of NCCL"},
    Setting{"ENCRYPTION", word, "OFF", false,
            "protection of messages between ranks and of TCP data, the same on all ranks: "
            "integrity: what is altered, repeated or left out on the way ends the connection; "
            "full: encrypted, too; needs libsodium",
            any, any, "OFF INTEGRITY FULL"},
    Setting{"ENV_PLUGIN", text, "", nccl,
            "in libnccl.so.2, libraries that may have an env plug-in, which gives the values of "
            "all NCCL_ variables; none: no plug-in. Read from the environment"},
    Setting{"FLIGHT_RECORDER_SIZE", integer, "256", false,
            "operations that each communicator remembers, for diagnosis", 1, 1 << 20},
    Setting{
        "GDR_FLUSH_DISABLE", flag, "0", nccl,
        "1: do not read what RDMA devices have written to GPU memory before the GPU is notified"},
    Setting{"GRAPH_DUMP_FILE", text, "", nccl, "XML file to which the graphs found are written"},
    Setting{"GRAPH_FILE", text, "", nccl, "XML file with the graphs to use instead of searching"},
    Setting{"HOSTID", text, "", nccl,
            "name of this host when deciding which ranks share one; by default of boot id and "
            "network namespace"},
    Setting{"IB_ADAPTIVE_ROUTING", integer, "-2", nccl,
            "1: the network may reorder packets, so that large pieces of a step are announced by a "
            "write of their own; 0: it keeps their order; -2: 1 on InfiniBand, 0 on RoCE",
            -2, 1},
    Setting{"IB_ADDR_FAMILY", word, "AF_INET", nccl,
            "address family of the RoCE GIDs to prefer, where CCL_IB_GID_INDEX is -1", any, any,
            "AF_INET AF_INET6"},
    Setting{"IB_ADDR_RANGE", text, "", nccl,
            "address/prefix length, such as 10.1.0.0/16, that RoCE GIDs are taken from"},
    Setting{"IB_AR_THRESHOLD", integer, "8192", nccl,
            "bytes from which CCL_IB_ADAPTIVE_ROUTING announces pieces apart", 0, Index{1} << 31},
    Setting{"IB_DISABLE", flag, "0", nccl, "1: never use InfiniBand or RoCE"},
    Setting{"IB_GID_INDEX", integer, "-1", nccl,
            "index of the GID that connections of RoCE ports start from; -1: choose by family, "
            "range and version",
            -1, 65535},
    Setting{
        "IB_GPU_MEMORY", integer, "-1", false,
        "whether slots of GPU ranks lie in GPU memory over RDMA and network plug-ins, by DMA-BUF "
        "or nvidia-peermem; -1: where the topology allows it (CCL_NET_GDR_LEVEL, "
        "CCL_NET_GDR_READ) and, over RDMA, a trial at set-up proves it; 1: whatever the topology "
        "says; 0: never; has not been run on hardware",
        -1, 1},
    Setting{"IB_HCA", text, "", nccl,
            "RDMA devices to use: a list of prefixes of names, each with :port or without; = "
            "before the list: whole names; ^ before it: all but these"},
    Setting{"IB_MERGE_NICS", flag, "1", nccl,
            "1: ports of one card (and devices that are on no PCI bus) are one NIC, over which "
            "every step is striped; 0: each channel of a connection uses one port"},
    Setting{
        "IB_PCI_RELAXED_ORDERING", integer, "2", nccl,
        "1 or 2: data may pass other data on the PCI bus, where device and kernel can; 0: never", 0,
        2},
    Setting{"IB_PKEY", integer, "0", nccl, "index of the partition key", 0, 65535},
    Setting{"IB_QPS_PER_CONNECTION", integer, "1", nccl,
            "queue pairs of a channel on each port; the ends take the larger number", 1, 64},
    Setting{"IB_RETRY_CNT", integer, "7", nccl,
            "times that a packet without an answer is sent again before the queue pair fails", 0,
            7},
    Setting{"IB_ROCE_VERSION_NUM", integer, "2", nccl,
            "RoCE version of the GIDs to prefer, where CCL_IB_GID_INDEX is -1", 1, 2},
    Setting{"IB_SL", integer, "-1", nccl, "service level; -1: 0", -1, 15},
    Setting{"IB_SPLIT_DATA_ON_QPS", flag, "0", nccl,
            "1: every step is spread over all queue pairs of its channel; 0: steps take turns"},
    Setting{"IB_TC", integer, "-1", nccl, "traffic class; -1: 0", -1, 255},
    Setting{"IB_TIMEOUT", integer, "20", nccl,
            "a packet without an answer is sent again after 4.096 us * 2^this; 0: never", 0, 31},
    Setting{
        "IGNORE_CPU_AFFINITY", flag, "0", nccl,
        "1: threads and buffers that serve a GPU, or the NICs of a CPU rank, go to all CPUs near "
        "it, and not only to those of them on which the process may run"},
    Setting{"INFERENCE", flag, "0", false,
            "1: the Python package's plug-ins of vLLM and SGLang make them all-reduce by ccl; 0: "
            "they do nothing"},
    Setting{"INIT_TIMEOUT", seconds, "60", false,
            "seconds without progress after which the creation of a communicator fails; 0: never"},
    Setting{"LAUNCH_ORDER_IMPLICIT", integer, "-2", nccl,
            "1: on GPUs, launches of different communicators that do not fit side by side wait for "
            "each other, in the order of the process's calls; 0: they do not; -2: 1 in "
            "libnccl.so.2, else 0",
            -2, 1},
    Setting{"LL128_BUFFSIZE", bytes, "", nccl, "the same in LL128", 4096, Index{1} << 31},
    Setting{"LL_BUFFSIZE", bytes, "", nccl, "the same in LL", 4096, Index{1} << 31},
    Setting{
        "MAX_CTAS", integer, "", nccl,
        "most thread blocks (CPU: channels) of one collective; by default on GPUs 32, and at most "
        "a quarter of the multiprocessors",
        1, 4096},
    Setting{
        "MEMORY_BUDGET", bytes, "", false,
        "bytes of buffers that one communicator may hold on one rank, a composition half of them; "
        "by default 1 GiB, a composition 64 MiB",
        1, any},
    Setting{"METRICS_DIR", text, "", false,
            "folder in which each process writes its metrics as Prometheus text, in a file "
            "ccl_HOST_PID.prom for the node exporter's textfile collector; empty: none"},
    Setting{"METRICS_INTERVAL", seconds, "15", false,
            "seconds between two writes of that file, at least 0.1"},
    Setting{"MIN_CTAS", integer, "", nccl,
            "fewest channels of one collective (a GPU's blocks follow from the size)", 1, 4096},
    Setting{"MNNVL_CLIQUE_ID", integer, "-1", nccl,
            "which part of its NVLink domain a GPU counts to; -1: as NVML says", -1, any},
    Setting{"MNNVL_ENABLE", integer, "2", nccl,
            "0: no P2P between hosts; 1 and 2: where NVLink joins them and the driver has fabric "
            "handles",
            0, 2},
    Setting{"MNNVL_UUID", integer, "-1", nccl,
            "the NVLink domain over several hosts that a GPU counts to; -1: as NVML says", -1, any},
    Setting{"MULTI_RANK_GPU_ENABLE", flag, "0", nccl, "1: several ranks may share one GPU"},
    Setting{"NCCL_FALLBACK", text, "", false,
            "in libnccl.so.2, path of NVIDIA's libnccl.so.2, which does what ccl cannot do: "
            "reductions without code, windows and what kernels need; each communicator has one of "
            "it beside its own if all ranks name it"},
    Setting{"NCCL_LIBRARY", text, "", false,
            "the libnccl.so.2 that the Python package and ccl_run load; by default the one in the "
            "package"},
    Setting{
        "NCHANNELS_PER_NET_PEER", integer, "", nccl,
        "channels, each with connections of its own, of Pairwise (send and receive, all-to-all, "
        "gather, scatter) where some ranks reach each other over a network; CCL_MIN_CTAS and "
        "CCL_MAX_CTAS bound them on CPU ranks; by default the composition's choice",
        1, 64},
    Setting{"NET", text, "", nccl,
            "the network to use: Socket, IB, or the name of a network plug-in of CCL_NET_PLUGIN, "
            "in any case"},
    Setting{"NETDEVS_POLICY", text, "AUTO", nccl,
            "number of NICs that a GPU takes of those equally near to it: AUTO: its share among "
            "the GPUs that are near to them, ALL, or MAX: and a number from 1"},
    Setting{"NET_FORCE_MERGE", text, "", nccl,
            "groups of NICs that count as one, whatever CCL_NET_MERGE_LEVEL says: lists of names, "
            "each with :port or without, parted by semicolons"},
    Setting{"NET_GDR_LEVEL", word, "", nccl,
            "the farthest path over which NICs access GPU memory; by default P2C", any, any,
            "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS 0 1 2 3 4 5"},
    Setting{"NET_GDR_READ", integer, "-1", nccl,
            "1: NICs also read GPU memory to send from it; 0: they only write there; -1: they "
            "read from sm_80 on, or if the GPU has NVLink or is alone on its host",
            -1, 1},
    Setting{"NET_MERGE_LEVEL", word, "PORT", nccl,
            "how far apart NICs may be that the topology takes as one (at most 4): LOC none, PORT "
            "ports of one card, PIX below one PCIe switch, PXB below several, PHB of one CPU, SYS "
            "of one host; a topology file with GPUs stands as it is unless this is set",
            any, any, "LOC PORT PIX PXB PHB SYS"},
    Setting{"NET_MERGE_POLICY", word, "ALL", nccl,
            "RAIL: only NICs of the same rail, as the topology file says, are taken as one", any,
            any, "ALL RAIL"},
    Setting{"NET_PLUGIN", text, "", nccl,
            "libraries that may have a network plug-in (version 9 to 12) or a CollNet plug-in (8 "
            "to 12), "
            "parted by commas; each is tried as it is named, then as libnccl-net-NAME.so; none: no "
            "plug-in. "
            "The first network that works is the only one, unless CCL_NET is IB or Socket. Without "
            "a value, "
            "libnccl-net.so is tried for a network that reduces, in libnccl.so.2, and if CCL_NET "
            "names a plug-in"},
    Setting{"NSOCKS_PERTHREAD", integer, "-2", nccl,
            "sockets of a connection for each thread that drives it, helpers and the proxy's; at "
            "most 64 in all; -2: 8 on a NIC of Amazon's cloud, else 1",
            -2, 64},
    Setting{"NUM_RMA_CTX", integer, "", nccl,
            "in libnccl.so.2, contexts of signals (`ncclPutSignal`) of a communicator; by default "
            "as the program's configuration says",
            0, 1 << 16},
    Setting{"NVB_DISABLE", flag, "0", nccl,
            "1: never relay between two GPUs through memory of a third one that has NVLink to both "
            "where they have none to each other"},
    Setting{"NVLS_ENABLE", flag, "0", false,
            "1: NVLink SHARP multicast is allowed, for `NvlsTransport` on GPUs; not run on "
            "hardware"},
    Setting{"P2P_CHECK", flag, "1", false,
            "0: use GPU peer access without trying each path when a communicator is created"},
    Setting{"P2P_DISABLE", flag, "0", nccl, "1: never use direct GPU peer access"},
    Setting{"P2P_EXCLUDE", text, "", false,
            "pairs that never access each other's GPU memory, of ranks (0-1) or of GPUs "
            "(0000:1b:00.0-0000:43:00.0), parted by commas"},
    Setting{"P2P_LEVEL", word, "", nccl, "the farthest path over which GPUs access each other", any,
            any, "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS 0 1 2 3 4 5"},
    Setting{"P2P_PXN_LEVEL", integer, "2", nccl,
            "whether messages between two ranks may leave by the NIC of the receiver's rail, "
            "through memory of the GPU next to it (PXN); 0: no; 1 and 2: yes",
            0, 2},
    Setting{
        "P2P_READ_ENABLE", flag, "0", nccl,
        "1: in Simple, what goes from GPU to GPU stays in the sender's memory, and the receiver "
        "reads it there (read mode), unless a third GPU is in between; the same on all ranks"},
    Setting{"PROFILER_PLUGIN", text, "", nccl,
            "in libnccl.so.2, libraries that may have a profiler plug-in (version 5 to 7), which "
            "gets events of calls; none: no plug-in"},
    Setting{"PROTO", text, "", nccl,
            "protocols to choose from: Simple, LL, LL128, written as CCL_ALGO is"},
    Setting{
        "PXN_DISABLE", flag, "0", nccl,
        "1: nothing is sent to another host through the GPU next to the NIC, and Auto never sends "
        "messages of AllToAll by way of the rank here that is on the receiver's rail"},
    Setting{"RAS_ADDR", text, "localhost:28028", nccl,
            "address and port at which each process answers questions about its communicators; "
            "[address]:port for IPv6. Who reaches it can read the state of the job"},
    Setting{"RAS_ENABLE", flag, "1", nccl, "0: no process answers such questions"},
    Setting{
        "REPORT_SIGNAL", integer, "0", false,
        "number of a signal on which a process logs what all ranks do and who is behind; 0: none",
        0, 64},
    Setting{"REPORT_STALL", seconds, "90", false,
            "seconds without progress after which one rank logs which rank is late and why; a "
            "certain fault, such as a stopped process, is logged after some seconds; 0: never"},
    Setting{"REQUIRE_SECRET", flag, "0", false,
            "1: refuse to start with a secret of public words, that is, by an address without "
            "CCL_SECRET, CCL_SECRET_FILE or PMIx"},
    Setting{"RMA_EAGER_INIT", integer, "-1", nccl,
            "in libnccl.so.2, 1: signals exist from the creation of a communicator on; 0: from its "
            "first window on; -1: as the program's configuration says",
            -1, 1},
    Setting{
        "RUNTIME_CONNECT", flag, "1", nccl,
        "0: Pairwise on CPU ranks connects every pair of ranks when it is created; 1: a pair "
        "is connected by the first call that has a message for it. GPU ranks over RDMA: 0: connect "
        "in `create`; 1: with the first step of a direction; over TCP, too, if set to 1"},
    Setting{"SECRET", text, "", false,
            "secret of a job that starts by an address, the same on all ranks, at least 16 "
            "bytes; ranks prove that they know it. Other users of a host cannot read it, but "
            "the launcher and its logs can"},
    Setting{"SECRET_FILE", text, "", false,
            "file whose content, at least 16 bytes, is that secret. It must belong to this user or "
            "root, and others must not read or write it. CCL_SECRET counts first"},
    Setting{"SHM_DISABLE", flag, "0", nccl, "1: never use shared memory between processes"},
    Setting{"SOCKET_FAMILY", word, "", nccl, "address family of the connections between hosts", any,
            any, "AF_INET AF_INET6"},
    Setting{"SOCKET_GPU_NTHREADS", integer, "-2", false,
            "threads that move what a GPU sends and receives over TCP; -2: one for two of the CPUs "
            "that are this rank's, at most 4",
            -2, 16},
    Setting{"SOCKET_IFNAME", text, "", nccl,
            "network interfaces to use: a list of prefixes of names; = before the list: whole "
            "names; ^ before it: all but these. The Socket transport spreads over up to four of "
            "them; without it, over one"},
    Setting{"SOCKET_NTHREADS", integer, "-2", nccl,
            "helper threads of the Socket transport, beside those that wait in a collective; -2: "
            "2 on a NIC of Amazon's cloud, 4 of Google's, else 0",
            -2, 16},
    Setting{"STRICT", flag, "0", false,
            "1: an unknown CCL_ name is an error and not a warning of rank 0"},
    Setting{"TIMEOUT", seconds, "0", false,
            "seconds without progress after which a collective fails; 0: never"},
    Setting{"TOPO_DUMP_FILE", text, "", nccl, "XML file to which the topology found is written"},
    Setting{"TOPO_FILE", text, "", nccl,
            "XML file with a topology, in NCCL's schema; %h becomes the host's name"},
    Setting{
        "TRACE_PHASES", flag, "0", false,
        "1: CPU ranks note when the phases of calls over wires begin, for `ccl_report --trace`; "
        "kernels note them where a program composes `Traced`"},
    Setting{"TRACE_TRANSFERS", integer, "0", false,
            "steps over networks that each rank remembers, with their times, for `ccl_report "
            "--trace`; 0: none",
            0, 1 << 20},
    Setting{"TRANSPORT", text, "", false,
            "transports to choose from: a list of names, or ^ and a list to leave out"},
    Setting{"TUNER_PLUGIN", text, "", nccl,
            "in libnccl.so.2, libraries that may have a tuner plug-in (version 5 to 7), which may "
            "choose Ring or Tree and a protocol; none: no plug-in"},
    Setting{"TUNE_FILE", text, "", false,
            "JSON file of measurements by ccl_perf --tune, which Auto chooses by; the same on all "
            "ranks"},
};
static_assert(std::is_sorted(table.begin(), table.end(),
                             [](const Setting& a, const Setting& b) { return a.name < b.name; }));

}  // namespace

std::span<const Setting> all_settings() {
  return table;
}

}  // namespace ccl::detail
