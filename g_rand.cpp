#include <doctest/doctest.h>
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "support/run_random.hpp"
#include <doctest/doctest.h>
#include <cstdio>
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/passes/canonical.hpp"
#include "support/run_random.hpp"
#include <doctest/doctest.h>
#include <cstdio>
#include <string>
#include <vector>
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/dynamic.hpp"
#include "support/run_random.hpp"
#include <doctest/doctest.h>
#include <cstdio>
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "support/run_random.hpp"
#include <doctest/doctest.h>
#include <vector>
#include "gspmd/dynamic.hpp"
#include "gspmd/ops.hpp"
#include <doctest/doctest.h>
#include <algorithm>
#include <cstdio>
#include <vector>
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/run_random.hpp"
namespace unit_random_local_ops {
#include "/work/wt/ci_time/tests/unit/random_local_ops.cpp"
}
namespace unit_random_programs {
#include "/work/wt/ci_time/tests/unit/random_programs.cpp"
}
namespace unit_random_views {
#include "/work/wt/ci_time/tests/unit/random_views.cpp"
}
namespace unit_random_windows {
#include "/work/wt/ci_time/tests/unit/random_windows.cpp"
}
namespace unit_long_programs {
#include "/work/wt/ci_time/tests/unit/long_programs.cpp"
}
namespace unit_joined_all_reduces {
#include "/work/wt/ci_time/tests/unit/joined_all_reduces.cpp"
}
