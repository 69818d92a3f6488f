#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""streams.py FILTER   tests gspmd-errors on lines of compilers and of make. compiled.py has whole outputs."""
import subprocess
import sys


def check(name, read, expected, status):
    done = subprocess.run([sys.executable, sys.argv[1]], input=read, capture_output=True, timeout=60)
    if done.stdout != expected or done.returncode != status or done.stderr:
        sys.exit(f"{name}: status {done.returncode}, not {status}\n{(done.stdout + done.stderr).decode(errors='replace')}\n"
                 f"expected:\n{expected.decode(errors='replace')}")


others = b"""[1/3] Building CXX object a.o
In file included from /usr/include/c++/12/vector:66,
                 from src/a.cpp:2:
src/a.cpp: In function \xe2\x80\x98int main()\xe2\x80\x99:
src/a.cpp:5:7: \x1b[35mwarning:\x1b[m unused variable 'gspmd'
    5 |   int gspmd = 1;
      |       ^~~~~
src/a.cpp:9:1: error: static assertion failed: my own rule of gspmd: no
latin \xe9, and CR\r
src/b.cpp:3:1: error: expected expression
}
^
1 error generated.
no end of line"""
check("other lines", others, others, 0)

gcc = b"""[2/3] Building CXX object b.o
\x1b[01m\x1b[KFAILED:\x1b[m\x1b[K b.o
In file included from /opt/x/include/gspmd/core.hpp:9,
                 from /home/me/gspmd/b.cpp:1:
/opt/x/include/gspmd/detail/support/refuse.hpp: In instantiation of 'consteval void gspmd::detail::refuse() [with Message = gspmd::message<gspmd::line{"no text"}>]':
/opt/x/include/gspmd/run/run.hpp:208:9:   required from 'auto gspmd::run()'
\x1b[01m\x1b[K/home/me/gspmd/b.cpp:18:21:\x1b[m\x1b[K   required from here
\x1b[01m\x1b[K/opt/x/include/gspmd/detail/support/refuse.hpp:110:19:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kstatic assertion failed: gspmd: the rule; the remedy; see message<>
  110 |     static_assert(accepted<Message>, "gspmd: the rule; the remedy; see message<>");
      |                   ^~~~~~~~~~~~~~~~~
/opt/x/include/gspmd/detail/support/refuse.hpp:110:19: note: 'gspmd::detail::accepted<gspmd::message<gspmd::line{"add at b.cpp:12: the text \\"a > b\\", in "}, gspmd::line{"two lines                           "}> >' evaluates to false
"""
gcc_line = b'/home/me/gspmd/b.cpp:18:21: error: gspmd: the rule; the remedy: add at b.cpp:12: the text "a > b", in two lines\n'
build = gcc[:gcc.index(b"In file")]
check("GCC", gcc + b"ninja: build stopped\n" + gcc + others, build + gcc_line + b"ninja: build stopped\n" + build + others, 1)

clang = b"""In file included from b.cpp:1:
/opt/x/include/gspmd/detail/support/refuse.hpp:110:5: error: static assertion failed due to requirement 'accepted<gspmd::message<gspmd::line{"the text                            "}>>': gspmd: the program is refused; see message<>
    static_assert(accepted<Message>, "gspmd: the program is refused; see message<>");
    ^             ~~~~~~~~~~~~~~~~~
/opt/x/include/gspmd/run/run.hpp:208:27: note: in instantiation of 'gspmd::compile<(lambda at b.cpp:12:26)>' requested here
constexpr auto f = 1;
               ^
b.cpp:19:14: note: in instantiation of function template specialization 'gspmd::run' requested here
auto sum = run<step>();
           ^
b.cpp:30:1: error: unknown type name 'x'
x y;
^
2 errors generated.
"""
check("Clang", clang, b"b.cpp:19:14: error: gspmd: the text\nb.cpp:30:1: error: unknown type name 'x'\nx y;\n^\n2 errors generated.\n", 1)

language = b"""In file included from /opt/x/include/gspmd/core.hpp:3,
                 from b.cpp:2:
/opt/x/include/gspmd/detail/support/language.hpp:9:10: fatal error: gspmd needs C++20: compile with -std=c++20: No such file or directory
compilation terminated.
"""
check("#include", language, b"b.cpp:2:1: error: gspmd: needs C++20: compile with -std=c++20\ncompilation terminated.\n", 1)

size = b"""b.cpp:6:35: error: non-type template argument is not a constant expression
    6 |   using A = input<double, shape<n, 80>>;
      |                             ^
"""
advice = (b"b.cpp:6:35: note: gspmd: sizes in shape<...> are compile-time constants; for sizes that are known at run time, use "
          b"gspmd::dynamic (docs/how_to/run_time.md)\n")
check("shape<n>", size, size + advice, 0)

wrong = subprocess.run([sys.executable, sys.argv[1], "b.cpp"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
helped = subprocess.run([sys.executable, sys.argv[1], "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
if wrong.returncode != 2 or wrong.stdout or helped.returncode != 0 or not helped.stdout.startswith(b"usage: "):
    sys.exit(f"wrong arguments: status {wrong.returncode}; --help: status {helped.returncode}")
