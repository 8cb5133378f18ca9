#pragma once

// Catch2, version 2 or 3, as installed.
#if defined(CCL_CATCH2_V3)
#  include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#  include <catch2/catch.hpp>
#endif
