#!/bin/bash
# rebuilt.sh BUILD_DIR HEADER...: prints how many objects of a finished build are compiled again once
# each header of include/ccl has changed, of how many in all. `ninja` has noted what they include.
set -e
build=$1
shift
[ $# -gt 0 ] || set -- algo/ring.hpp algo/tree.hpp algo/direct.hpp proto/ll128.hpp
current=$(ninja -C "$build" -t targets all | sed -n 's/^\([^ ]*\.\(o\|gch\)\): .*/\1/p' | sort)
ninja -C "$build" -t deps | awk -v current="$current" -v headers="$*" '
  BEGIN {
    n = split(current, all, "\n")
    for (i = 1; i <= n; ++i) is_current[all[i]] = 1
    count = split(headers, header, " ")
  }
  /^[^ ]/ { object = substr($1, 1, length($1) - 1); objects += is_current[object] }
  /^ / && is_current[object] {
    for (h = 1; h <= count; ++h) {
      if (index($1, "/include/ccl/" header[h]) && !seen[object, h]++) ++found[h]
    }
  }
  END { for (h = 1; h <= count; ++h) printf "%-24s %4d of %d\n", header[h], found[h], objects }'
