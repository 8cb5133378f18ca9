#pragma once

#include <ccl/types/word.hpp>
