#pragma once

#include <ccl/algo/ring.hpp>
