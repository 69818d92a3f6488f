// SPDX-License-Identifier: Apache-2.0
#include "application.hpp"

#include <cstdio>
#include <exception>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include <gspmd/dynamic/planning_limit.hpp>
#include <gspmd/report/explain_sharding.hpp>
#include <gspmd/report/html.hpp>
#include <gspmd/report/memory.hpp>
#include <gspmd/report/report.hpp>
#include <gspmd/report/suggest_annotations.hpp>
#include <gspmd/version.hpp>

#include "deadline.hpp"
#include "dot.hpp"
#include "explain_sharding.hpp"
#include "json_out.hpp"
#include "run.hpp"
#include "search.hpp"
#include "strict_out.hpp"
#include "svg.hpp"
#include "table.hpp"
#include "whole_file.hpp"

namespace plan_tool {

namespace {

constexpr const char* help_text =
    "  FILE              the program document; - is the standard input\n"
    "  --json            the plan as JSON instead of a table\n"
    "  --run DIR         run it on DIR/NAME.npy, one file for each input, each the whole array\n"
    "  --out DIR         where --run writes NAME.npy for every output, whole\n"
    "  --check           also run on one device and compare; without --run, on small made-up numbers\n"
    "  --checked         in a run, devices compare data that must be equal on all devices: inputs and results of operators\n"
    "  --explain VALUE   for each axis of the mesh: the annotation and the operators that determine a sharding; then the other\n"
    "                    ways to run its operator with the time each takes, and the time of the whole plan with another "
    "sharding\n"
    "  --collectives     only the rows of the table that send data\n"
    "  --all             every row of the table; otherwise the rows of equal layers are shown once\n"
    "  --bytes           exact bytes and flops instead of 44.1 MB and 15.1 GFLOP; --json always has exact numbers\n"
    "  --from V, --to V  of the table only the values from one to another, in the order of the document\n"
    "  --scope PATH      of the table, --report, --timeline, --layers and --html only the scopes whose path ends so: "
    "`attention`,\n"
    "                    `layer/attention`, and where several have one path `layer[3]/attention`\n"
    "  --compare OTHER   compares this plan with that of another document: collectives, totals, and the operators that differ\n"
    "  --dot FILE        the program of one device for Graphviz, collectives coloured\n"
    "  --svg FILE        which device holds which part, with replicas and padding\n"
    "  --value NAME      only this value in --svg\n"
    "  --report WHAT     instead of the table: `most-expensive`, the collectives that take longest, and which other\n"
    "                    annotations make the step faster; `summary`, numbers by kind;\n"
    "                    `outline`, the computations between collectives, with equal layers once; or `memory`,\n"
    "                    the changes for `memory_per_device`, with the bytes and the time of each\n"
    "  --timeline FILE   the estimated step, computing and each axis: a picture if FILE ends in .svg, else a trace for Perfetto\n"
    "  --layers FILE     the outline as a picture (SVG)\n"
    "  --html FILE       the plan as one page for a browser: totals, timeline, how to avoid the most expensive collectives, and "
    "the\n"
    "                    program folded by scopes with the sharding, bytes and time of each operator\n"
    "  --network FILE    JSON in the form of the mesh's `network`, which it replaces\n"
    "  --search          finds annotations of the inputs that have none, and of values where that helps, by planning again and "
    "again, for\n"
    "                    the least time on the network within `memory_per_device`; says what to write, and what was compared. "
    "The other\n"
    "                    options are about the document with these annotations. Not for documents that write their "
    "communication\n"
    "  --anew            a search without the annotations of the document, except for its reshards\n"
    "  --devices N       a search of the mesh too: of N devices, with one, two or three axes, or the axes of the network's "
    "links\n"
    "  --plans N         how many plans a search may make, 1000 unless this says otherwise\n"
    "  --annotated FILE  where a search writes the document with the annotations that it found\n"
    "  --work N          how much planning may do, 1500000 unless this says otherwise: the prices that it works out and the "
    "nodes "
    "that\n"
    "                    it reads. The same on every machine. A search ends after 50000000\n"
    "  --seconds N       the processor time that planning, or a search, may take; any time unless this says otherwise\n"
    "  --version         prints the version of the library\n"
    "  --help            this\n"
    "\n"
    "`bytes` are the bytes that one device sends, including padding of uneven shards, with n devices in a group:\n"
    "  all_reduce          2(n-1)/n of the buffer    ring: reduce-scatter, then all-gather\n"
    "  reduce_scatter      n-1 result shards         ring, or direct\n"
    "  all_gather          n-1 shards                ring\n"
    "  all_to_all          (n-1)/n of the shard      direct, each device to each other one\n"
    "  collective_permute  the shard                 direct, one device to one other\n"
    "A pad on a split dim sends the elements across the ends of the shards, at most the shard, by collective_permute.\n"
    "An all_to_all that also gathers or slices counts the elements that a device lacks. all_slice (a device keeps a\n"
    "part of its data) and copy send nothing. The peak is inputs, outputs and everything between them.\n"
    "\n"
    "operators: ";

class application {
 public:
  application(const options& o, const surroundings& here) : options_(o), here_(here) {}

  report run() {
    json document;
    std::optional<planned_program> p;
    std::vector<std::string> why, remarks;
    std::string costs;
    std::vector<any_array> inputs;
    const bool wants_run = !options_.run.empty() || options_.check;
    // A search ends after the current plan.
    auto limit = std::make_optional<gspmd::dynamic::planning_limit>(options_.search ? 2 * work() + default_work : work());
    std::optional<deadline> end;
    if (options_.seconds > 0)
      end.emplace(options_.search ? 2 * options_.seconds + 2 : options_.seconds,
                  options_.json && here_.writes ? plan_json(nullptr, {too_long()}) : "",
                  here_.writes ? document_name() + ": " + too_long() + '\n' : "");
    try {  // after any exception, this process must still synchronise with the other processes
      const auto text = read_file(options_.file, errors_);
      if (errors_.empty()) document = parse_document(text, errors_);
      if (errors_.empty() && !options_.network.empty()) connect(document);
      if (errors_.empty() && options_.checked && document.is_object() && document.contains("mesh") &&
          document["mesh"].is_object())
        document["mesh"]["checked"] = true;
      if (errors_.empty() && is_strict(document) && !wants_plan()) return check_strict(document);
      if (errors_.empty() && options_.search) costs = search(document);
      if (errors_.empty()) p = plan(document, devices::of_mesh, errors_);
      if (p && !options_.scope.empty()) check_scope(*p);
      if (p && errors_.empty()) {
        why = explained_sharding(*p);
        if (here_.writes) draw(*p);
        if (!options_.report.empty()) costs = report_costs(*p);
        if (!options_.compare.empty()) costs = compare_with_other(*p);
        find_shown(*p);
        if (wants_run) inputs = find_inputs(*p);
      }
    } catch (const std::exception& e) {
      errors_.add("", e.what());
    }
    if (limit->is_exceeded()) {
      p.reset();
      errors_ = {};
      errors_.add("", too_much_work());
    }
    limit.reset();
    // Either all processes of a launch run the program, or none.
    if (wants_run) end.reset();
    if (wants_run && here_.agree(p && errors_.empty())) run_program(*p, document, inputs, remarks);

    report r;
    r.status = errors_.empty() ? 0 : 1;
    for (const auto& e : errors_.lines()) r.err += document_name() + ": " + e + '\n';
    if (options_.json) {
      r.out = plan_json(p ? &*p : nullptr, errors_.lines(), why);
    } else if (p && !why.empty()) {
      for (const auto& line : why) r.out += line + '\n';
    } else if (p && errors_.empty() && !costs.empty()) {
      r.out = costs;
    } else if (p && errors_.empty() && !wants_run) {
      r.out = plan_table(*p, network_of(*p), colours{here_.is_terminal}, shown_, form()).text();
    }
    if (!options_.json)
      for (const auto& line : remarks) r.out += gspmd::printable(line) + '\n';
    return r;
  }

 private:
  /// Returns true if the document writes its own communication.
  [[nodiscard]] static bool is_strict(const json& document) {
    const auto mode = document.is_object() ? document.find("mode") : document.end();
    return document.is_object() && mode != document.end() && *mode != "automatic";
  }
  /// Returns true if an option needs a plan. For an explicit document, a plan is more than its types.
  [[nodiscard]] bool wants_plan() const {
    for (const auto* option :
         {&options_.run, &options_.explain, &options_.dot, &options_.svg, &options_.report, &options_.timeline, &options_.layers,
          &options_.html, &options_.compare, &options_.from, &options_.to, &options_.scope})
      if (!option->empty()) return true;
    return options_.check || options_.collectives || options_.search;
  }
  /// Searches annotations and adds them to the document. Returns the text of the result.
  std::string search(json& document) {
    if (is_strict(document)) {
      errors_.add("--search", "the document writes its own communication, and nothing is left to annotate");
      return {};
    }
    auto found = find_annotations_of(
        document, {options_.anew, options_.devices, options_.plans, work(), options_.seconds, here_.shows_progress}, errors_);
    if (!errors_.empty()) return {};
    document = std::move(found.document);
    if (!options_.annotated.empty() && here_.writes) write_text(options_.annotated, "--annotated", document.dump(1) + '\n');
    return found.text;
  }
  static std::optional<planned_program> plan(const json& document, devices on, error_list& errors) {
    if (!is_strict(document)) return plan_document(document, on, errors);
    strict_reader reader(document, errors);
    auto answer = reader.run();
    if (answer)
      for (const auto& line : strict_errors(*answer)) errors.add("", line);
    if (!answer || !errors.empty()) return {};
    auto built = reader.built(on);
    if (!built) return {};
    return planned(std::move(*built), errors);
  }
  /// Finds and checks the types, if no option needs more.
  report check_strict(const json& document) {
    report r;
    const auto answer = errors_.empty() ? strict_reader(document, errors_).run() : std::nullopt;
    auto lines = errors_.lines();
    if (options_.json) r.out = strict_json(answer ? &*answer : nullptr, lines);
    else if (answer && lines.empty() && answer->errors.empty()) r.out = strict_table(*answer);
    if (answer)
      for (auto& line : strict_errors(*answer)) lines.push_back(std::move(line));
    for (const auto& line : lines) r.err += document_name() + ": " + gspmd::printable(line) + '\n';
    r.status = lines.empty() ? 0 : 1;
    return r;
  }

  [[nodiscard]] std::string document_name() const {
    return options_.file == "-" ? "standard input" : gspmd::printable(options_.file);
  }
  [[nodiscard]] std::int64_t work() const {
    return options_.work > 0 ? options_.work : options_.search ? default_work_of_search : default_work;
  }
  [[nodiscard]] std::string too_much_work() const {
    return "planning needs more than " + std::to_string(work()) +
           " units of work (prices worked out and nodes read); --work N allows more, and fewer values or axes need less";
  }
  [[nodiscard]] std::string too_long() const {
    return "planning takes more than the " + std::to_string(options_.seconds) +
           " s of processor time that --seconds allows; fewer values or axes take less";
  }

  int find(const planned_program& p, const std::string& name, const char* option) {
    const int v = p.find(name);
    if (v >= 0) return v;
    std::string names;
    for (const auto& value : p.built.values) {
      if (names.size() > 200) {
        names += " ...";
        break;
      }
      names += (names.empty() ? "" : " ") + value.name;
    }
    errors_.add(option, "no value is called " + in_quotes(name) + "; there are: " + names);
    return -1;
  }

  std::vector<any_array> find_inputs(const planned_program& p) {
    const auto devices = here_.devices_here > 0 ? here_.devices_here : p.mesh().device_count();
    const auto most = p.built.devices_part && options_.backend == "simulated" ? most_threads : here_.most_devices;
    const auto obstacle = cannot_run(p, devices, most, options_.backend);
    if (!obstacle.empty()) errors_.add("", obstacle);
    else if (!options_.run.empty()) return read_inputs(p, options_.run, errors_);
    else return made_inputs(p);
    return {};
  }

  std::vector<std::string> explained_sharding(const planned_program& p) {
    if (options_.explain.empty()) return {};
    const int v = find(p, options_.explain, "--explain");
    if (v < 0) return {};
    auto lines = sharding_reasons(p).of(v);
    const auto compared = p.plan.node_of(v) < 0 ? std::string() : gspmd::dynamic::explain_sharding(p.plan, v, p.value(v).name);
    for (std::size_t at = 0, end = 0; at < compared.size(); at = end + 1) {
      end = compared.find('\n', at);
      lines.push_back(compared.substr(at, end - at));
    }
    return lines;
  }

  /// Adds the network of a file to the document.
  void connect(json& document) {
    error_list own;
    const auto text = read_file(options_.network, own);
    json given;
    if (own.empty()) given = parse_document(text, own);
    for (const auto& line : own.lines()) errors_.add("--network " + options_.network, line);
    if (own.empty() && document.is_object() && document.contains("mesh") && document["mesh"].is_object())
      document["mesh"]["network"] = std::move(given);
  }

  /// Returns the network of the document, or the network that plans assume by default.
  static gspmd::network network_of(const planned_program& p) {
    return p.built.network ? *p.built.network : gspmd::default_network;
  }
  static std::string assumed(const planned_program& p) {
    return p.built.network ? "" : "no network is given: 31.25e9 bytes/s to every device, 1e12 flops/s\n";
  }
  [[nodiscard]] gspmd::number_form form() const {
    return options_.bytes ? gspmd::number_form::exact : gspmd::number_form::rounded;
  }
  [[nodiscard]] std::string suggested(const planned_program& p) const {
    return gspmd::dynamic::suggest_annotations(p.plan, network_of(p), 10, options_.scope, gspmd::annotation_form::document,
                                               form());
  }
  /// Returns the name of the document without its folder and `.json`.
  [[nodiscard]] std::string title() const {
    auto name = document_name();
    name = name.substr(name.rfind('/') + 1);
    return name.ends_with(".json") ? name.substr(0, name.size() - 5) : name;
  }
  static std::string memory_given_up(const planned_program& p, const gspmd::network& net) {
    if (p.plan.request().most_memory <= 0) return "no limit of memory is given: write `memory_per_device` in the mesh\n";
    return gspmd::explain_memory(p.plan, net);
  }
  std::string report_costs(const planned_program& p) {
    const auto net = network_of(p);
    const auto& program = p.program();
    return assumed(p) + (options_.report == "most-expensive" ? suggested(p)
                         : options_.report == "summary"      ? gspmd::summary(program, net, options_.scope, form())
                         : options_.report == "memory"       ? memory_given_up(p, net)
                                                             : gspmd::outline(program, net, options_.scope, form()));
  }

  std::string compare_with_other(const planned_program& p) {
    error_list own;
    const auto text = read_file(options_.compare, own);
    std::optional<planned_program> other;
    json document;
    if (own.empty()) document = parse_document(text, own);
    if (own.empty()) other = plan(document, devices::of_mesh, own);
    for (const auto& line : own.lines()) errors_.add("--compare " + options_.compare, line);
    return other ? assumed(p) + gspmd::compare(p.program(), other->program(), network_of(p), form()) : "";
  }
  void check_scope(const planned_program& p) {
    try {
      static_cast<void>(p.plan.labels_in(options_.scope));
    } catch (const gspmd::error& e) {
      errors_.add("--scope", e.text());
    }
  }
  void find_shown(const planned_program& p) {
    shown_.collectives_only = options_.collectives;
    shown_.folds = !options_.all;
    shown_.scope = options_.scope;
    if (!options_.scope.empty()) {
      shown_.in_scope.assign(p.built.values.size(), false);
      for (const int v : p.plan.labels_in(options_.scope))
        if (v >= 0) shown_.in_scope[static_cast<std::size_t>(v)] = true;
    }
    if (!options_.from.empty()) shown_.first = find(p, options_.from, "--from");
    if (!options_.to.empty()) shown_.last = find(p, options_.to, "--to");
    if (errors_.empty() && shown_.last < shown_.first)
      errors_.add("--to", in_quotes(options_.to) + " is before " + in_quotes(options_.from));
  }

  void draw(const planned_program& p) {
    if (!options_.timeline.empty())
      write_text(options_.timeline, "--timeline",
                 options_.timeline.ends_with(".svg") ? gspmd::timeline_svg(p.program(), network_of(p), options_.scope, form())
                                                     : gspmd::timeline(p.program(), network_of(p), options_.scope));
    if (!options_.layers.empty())
      write_text(options_.layers, "--layers", gspmd::outline_svg(p.program(), network_of(p), options_.scope, form()));
    if (!options_.html.empty())
      write_text(options_.html, "--html",
                 gspmd::report_html(p.program(), network_of(p), options_.scope, assumed(p) + suggested(p), title(), form()));
    if (!options_.dot.empty()) write_text(options_.dot, "--dot", dot_graph(p, form()));
    if (options_.svg.empty()) return;
    std::vector<int> values;
    if (options_.value.empty()) {
      for (int v = 0; v < static_cast<int>(p.built.values.size()); ++v) values.push_back(v);
    } else if (const int v = find(p, options_.value, "--value"); v >= 0) {
      values.push_back(v);
    }
    if (!values.empty()) write_text(options_.svg, "--svg", shard_picture(p).of(values));
  }

  void write_text(const std::string& file, const char* option, const std::string& text) {
    const auto failed = write_whole_file(file, chosen_by::user, [&](std::ostream& out) { out << text; });
    if (!failed.empty()) errors_.add(option, file + " cannot be written: " + failed);
  }

  void run_program(const planned_program& p, const json& document, const std::vector<any_array>& inputs,
                   std::vector<std::string>& remarks) {
    try {
      // All devices of one thread take the same branch.
      const bool needs_threads = p.built.devices_part && options_.backend == "simulated";
      const auto outputs =
          needs_threads ? run_on("threads", p.program(), pointers_to(inputs)) : here_.launch(p.program(), pointers_to(inputs));
      if (!here_.writes) return;
      if (!options_.out.empty()) write_outputs(p, outputs, options_.out, errors_, remarks);
      if (options_.check) compare(document, inputs, outputs, p, remarks);
    } catch (const std::exception& e) {
      errors_.add("", e.what());
    }
  }

  void compare(const json& document, const std::vector<any_array>& inputs, const std::vector<any_array>& outputs,
               const planned_program& p, std::vector<std::string>& remarks) {
    const auto alone = plan(document, devices::one, errors_);
    if (!alone) return;
    const auto expected = run_on("serial", alone->program(), pointers_to(inputs));
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const auto& name = p.value(p.built.outputs[k]).name;
      bool agree = true;
      const auto line = comparison(outputs[k], expected[k], agree);
      remarks.push_back("check " + name + ": " + line);
      if (!agree) errors_.add("--check", "the output " + in_quotes(name) + ' ' + line + ", compared with one device");
    }
  }

  const options& options_;
  const surroundings& here_;
  shown_values shown_;
  error_list errors_;
};

}  // namespace

report run_application(const options& o, const surroundings& here) { return application(o, here).run(); }

int answer_usage(const char* usage, int argc, char** argv, options& o, bool talks) {
  try {
    o = parse(argc, argv);
  } catch (const usage_error& mistake) {
    if (talks) std::fprintf(stderr, "%s\n%s", gspmd::printable(mistake.what()).c_str(), usage);
    return 2;
  }
  if (!o.asks_for_help && !o.asks_for_version) return -1;
  if (talks && !o.asks_for_help) {
    std::printf("gspmd-plan %d.%d.%d\n", GSPMD_VERSION / 10000, GSPMD_VERSION / 100 % 100, GSPMD_VERSION % 100);
    return 0;
  }
  if (talks) std::printf("%s%s%s\n", usage, help_text, known_operators().c_str());
  return 0;
}

int say(const report& r) {
  std::fputs(r.err.c_str(), stderr);
  std::fputs(r.out.c_str(), stdout);
  if (std::fflush(stdout) != 0) {
    std::fputs("the standard output cannot be written\n", stderr);
    return 1;
  }
  return r.status;
}

}  // namespace plan_tool
