#pragma once

#include <ccl/proto/simple.hpp>
