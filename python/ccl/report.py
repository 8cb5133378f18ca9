"""Who was behind in a job that has failed: ``python -m ccl.report``, or ``ccl_report``.

Arguments are folders of ``CCL_DUMP_DIR`` or of `Communicator.dump`; ``--trace FILE`` and ``--page
FILE`` write the operations of all ranks on a time line.
"""

from __future__ import annotations

import sys

from . import _tools
from ._errors import InvalidArgumentError

__all__ = ["main", "text"]


def text(*arguments: str) -> str:
    """Returns what ``ccl_report ARGUMENTS`` prints.

    Examples
    --------
    >>> import ccl.report
    >>> print(ccl.report.text("/shared/records", "--page", "records.html"))  # doctest: +SKIP
    """
    return _tools.output("ccl_report", arguments, InvalidArgumentError)


def main() -> None:
    """Console command ``ccl_report``."""
    _tools.replace_by("ccl_report", sys.argv[1:])


if __name__ == "__main__":
    main()
