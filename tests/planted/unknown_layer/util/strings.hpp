#pragma once

#include <ccl/types.hpp>
