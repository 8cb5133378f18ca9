#pragma once

#include <ccl/collective.hpp>
