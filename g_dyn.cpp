#include <doctest/doctest.h>
#include <limits>
#include <string>
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/equal_plans.hpp"
#include <doctest/doctest.h>
#include <string>
#include <tuple>
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/equal_plans.hpp"
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>
#include "gspmd/dynamic.hpp"
#include "gspmd/explain.hpp"
#include "gspmd/gspmd.hpp"
#include <doctest/doctest.h>
#include <string>
#include <utility>
#include <vector>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <doctest/doctest.h>
#include <string>
#include <tuple>
#include <vector>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <doctest/doctest.h>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include "gspmd/detail/ir/mesh_views.hpp"
#include <doctest/doctest.h>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>
#include "gspmd/dynamic.hpp"
#include "gspmd/explain.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/placements.hpp"
#include "gspmd/run.hpp"
#include "gspmd/views.hpp"
#include "gspmd/xla_sharding.hpp"
namespace unit_dynamic {
#include "/work/wt/ci_time/tests/unit/dynamic.cpp"
}
namespace unit_dynamic_mixed {
#include "/work/wt/ci_time/tests/unit/dynamic_mixed.cpp"
}
namespace unit_dynamic_queries {
#include "/work/wt/ci_time/tests/unit/dynamic_queries.cpp"
}
namespace unit_replication {
#include "/work/wt/ci_time/tests/unit/replication.cpp"
}
namespace unit_scan_rows {
#include "/work/wt/ci_time/tests/unit/scan_rows.cpp"
}
namespace unit_whole_arrays {
#include "/work/wt/ci_time/tests/unit/whole_arrays.cpp"
}
namespace unit_mesh_views {
#include "/work/wt/ci_time/tests/unit/mesh_views.cpp"
}
