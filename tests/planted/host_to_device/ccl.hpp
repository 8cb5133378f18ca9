#pragma once

#include <ccl/device_lanes.cuh>
