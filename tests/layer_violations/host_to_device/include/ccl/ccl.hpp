#pragma once

#include <ccl/detail/lanes/device_lanes.cuh>
