"""``python -m ccl``: prints versions, or the folder that CMake's find_package needs."""

from __future__ import annotations

import argparse

from . import NotSupportedError, cmake_prefix, nccl, show_versions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ccl", description=__doc__)
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--json", action="store_true", help="print versions as JSON")
    one.add_argument("--cmake-prefix", action="store_true", help="print CMAKE_PREFIX_PATH")
    one.add_argument("--nccl-library", action="store_true", help="print the path of libnccl.so.2")
    given = parser.parse_args()
    if given.cmake_prefix:
        print(cmake_prefix())
    elif given.nccl_library:
        try:
            print(nccl.library())
        except NotSupportedError as error:
            parser.exit(1, f"python -m ccl: {error}\n")
    else:
        show_versions(as_json=given.json)


if __name__ == "__main__":
    main()
