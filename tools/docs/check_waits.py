#!/usr/bin/env python3
"""Checks that the tables of docs/internals/waits.md list every call that waits, in include/ and src/.

Test ccl.docs.waits. A place is a file and a call, with the number of its occurrences if there are
several, so that a place stays the same when lines move. A call that cannot block (MSG_DONTWAIT, a
timeout of 0) is no wait. `--list` prints the places of the sources.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import pages

PAGE = "docs/internals/waits.md"
SOURCES = (".hpp", ".cuh", ".cpp", ".cu")
# Name of a call in the tables, and what it looks like in the sources. `C:` is a function of the
# system: no class is named before the colons.
CALLS = {
    # descriptors
    "poll": r"C:p?poll\(",
    "epoll_wait": r"C:epoll_p?wait\w*\(",
    "select": r"C:p?select\(",
    "connect": r"C:connect\(",
    "accept": r"C:accept4?\(",
    "recv": r"C:recv(?:from|msg|mmsg)?\(",
    "send": r"C:send(?:to|msg|mmsg|file)?\(",
    "read": r"C:p?readv?2?\(|C:eventfd_read\(",
    "write": r"C:p?writev?2?\(|C:eventfd_write\(",
    "random": r"C:getrandom\(|C:getentropy\(",
    "open": r"C:open(?:at|dir)?\(",
    "fstream": r"std::[io]?fstream\b",
    "print": r"fmt::print\(|std::(?:printf|fprintf|puts|fputs|cout|cerr|clog)\b",
    "fsync": r"C:f(?:data)?sync\(",
    "flock": r"C:flock\(|C:lockf\(|F_(?:OFD_)?SETLKW\b",
    # threads and processes
    "wait": r"(?:\.|->)wait\(",
    "wait_for": r"(?:\.|->)wait_for\(",
    "wait_until": r"(?:\.|->)wait_until\(",
    "arrive_and_wait": r"arrive_and_wait\(",
    "get_future": r"get_future\(",
    "semaphore": r"std::(?:binary|counting)_semaphore\b",
    "join": r"(?:\.|->)join\(\)",
    "synchronize": r"(?:\.|->)synchronize\(\)",
    "futex": r"SYS_futex\b",
    "sleep": r"this_thread::sleep_\w+\(|C:(?:u|nano)?sleep\(|C:clock_nanosleep\(",
    "yield": r"C:sched_yield\(|this_thread::yield\(",
    "pthread": r"C:pthread_(?:join|cond_\w*wait|barrier_wait|mutex_lock)\(",
    "waitpid": r"C:wait(?:pid|id|3|4)?\(|C:popen\(|std::system\(",
    "sigwait": r"C:sig(?:timed)?wait\w*\(|C:sigsuspend\(|C:pause\(",
    # libraries
    "getaddrinfo": r"C:getaddrinfo\(|C:getnameinfo\(|C:gethostby\w+\(|C:getpw\w+\(",
    "dlopen": r"C:dlopen\(",
    "start_detached": r"(?<!auto )\bstart_detached\(",
    "verbs": r"(?:\.|->)(?:get_async_event|get_cq_event|destroy_cq|destroy_qp)\(",
    # CUDA
    "cuda synchronize": r"(?:stream|event|ctx)_synchronize\(|cu\w+Synchronize\(",
    "cuda free": r"(?:\.|->)(?:mem_free|mem_host_unregister|mem_free_host|ipc_close_mem_handle)\(",
    "stream wait": r"(?:\.|->)stream_wait_event\(|cudaStreamWaitEvent\(",
    "stream value": r"(?:\.|->)stream_batch_mem_op\(",
    "launch": r"cudaLaunch\w+\(|cuLaunch\w+\(|<<<",
    # loops that poll memory
    "spin": r"(?:\.|->)ends\(",
    "loop on a load": r"\bwhile \(.*(?:load\w*\(|try_acquire|try_lock|compare_exchange)",
    # lanes of a GPU
    "barrier": r"\"[^\"]*\bbar(?:rier)?\.(?:cta\.)?(?:sync|red|warp)|__sync(?:threads|warp)\(",
    "device sleep": r"nanosleep\.u32|__nanosleep\(",
    "grid wait": r"griddepcontrol\.wait|cudaGridDependencySynchronize",
    "mbarrier": r"mbarrier\.\w*wait|cp\.async\S*\.wait",
}
CALLS = {call: regex.replace("C:", r"(?<![\w>])::") for call, regex in CALLS.items()}
CANNOT_BLOCK = re.compile(r"MSG_DONTWAIT|RWF_NOWAIT|RTLD_NOLOAD")
NO_TIMEOUT = re.compile(r",\s*0\s*\)$")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
PLACE = re.compile(r"^\|\s*`((?:include|src)/[^`]+)`\s*\|\s*`([a-z_ ]+)`(?:\s*\((\d+)\))?\s*\|")


def call_text(code, begin):
    """The call that begins at `begin`, up to the bracket that ends it."""
    depth = 0
    for at in range(code.find("(", begin), len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return code[begin : at + 1]
    return code[begin:]


def waits(call, code, match):
    text = call_text(code, match.start())
    if call in ("recv", "send", "write", "dlopen") and CANNOT_BLOCK.search(text):
        return False
    return not (call in ("poll", "epoll_wait") and NO_TIMEOUT.search(text))


def found(root):
    """Number of calls by (file, call)."""
    places = Counter()
    for path in pages.files(root, SOURCES, ("include", "src")):
        code = COMMENT.sub("", path.read_text(encoding="utf-8"))
        name = path.relative_to(root).as_posix()
        for call, pattern in CALLS.items():
            for match in re.finditer(pattern, code):
                places[name, call] += waits(call, code, match)
    return +places


def listed(page):
    """Rows of the tables, as those of `found`; and the places that have two rows."""
    places, twice = {}, []
    for _, line in pages.split(page)[0]:
        row = PLACE.match(line)
        if not row:
            continue
        place = row[1], row[2]
        if place in places:
            twice.append(place)
        places[place] = int(row[3] or 1)
    return places, twice


def problems_of(root):
    there, (rows, twice) = found(root), listed(root / PAGE)
    problems = [f"{PAGE}: two rows for `{call}` in {file}" for file, call in twice]
    for (file, call), count in sorted(there.items()):
        if (file, call) not in rows:
            problems.append(f"{file}: `{call}` waits; say in {PAGE} for what, and what ends it")
        elif rows[file, call] != count:
            problems.append(
                f"{file}: `{call}` occurs {count} times and {PAGE} says {rows[file, call]}; "
                "look at each of them"
            )
    for file, call in sorted(rows.keys() - there.keys()):
        problems.append(f"{PAGE}: {file} has no `{call}` any more; take the row out")
    return problems, sum(there.values())


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--list"]
    root = Path(arguments[0]).resolve() if arguments else pages.ROOT
    if "--list" in sys.argv:
        for (file, call), count in sorted(found(root).items()):
            print(f"| `{file}` | `{call}`{f' ({count})' if count > 1 else ''} |")
        sys.exit(0)
    problems, count = problems_of(root)
    pages.finish(problems, f"{count} waits")
