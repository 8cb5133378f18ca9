#pragma once

#include <ccl/choose/candidates.hpp>
