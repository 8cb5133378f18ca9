#pragma once

#include <ccl/collective/collective.hpp>
