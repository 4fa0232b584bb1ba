/* A reference for our simulator: plays jobs on SimGrid's own models of processors, links and parallel tasks.

   It is written for these tests, after what ElastiSim documents and does: each node of a job is an actor of its
   own, with barriers between them; what a task computes and sends is one parallel task (host/model ptask_L07);
   what a node reads or writes is one to or from the host of the file system; a job comes to the scheduler before
   each iteration but the first, and goes on as the scheduler says. Who may have which nodes is decided by one of
   three rules, on each event. Under all of them jobs start from the front of the queue, on as many free nodes as
   they can take, and one that asks for more nodes gets all of them then and there, or none.

   example  as in ElastiSim's example: jobs start when one is submitted or has ended; a malleable job grows when
            it is at its scheduling point
   point    the same, but jobs start as well on nodes that another one gives up
   hold     as point, but on each event malleable jobs get what is left, the first started first, and have it from
            their next point on

   Usage: reference PLATFORM JOBS RULE. JOBS is written by run_reference.py: words, as `read` expects them.
   Answers a line that says the version, and one per job: number, submitted, started, ended. */

#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

struct Task {
  std::string kind; // cpu, read, write, idle
  double work = 0;  // flops, bytes of the file system, or seconds
  std::string spread;
  double sent = 0; // bytes between nodes
  std::string traffic;
  bool coupled = false;
};

using Tasks = std::vector<Task>;

/* What a job does on so many nodes. */
struct Shape {
  Tasks init, resize, growth, round;
  std::vector<int> wishes; // by iteration
};

struct Job {
  int id = 0;
  std::string kind;
  double submit = 0, start = -1, end = -1;
  int least = 1, most = 1, rounds = 1;
  bool asks = false;
  std::vector<Shape> shapes; // by size
  int round = 0;             // the one at hand
  std::vector<sg4::Host*> hosts;
  std::vector<sg4::Host*> reserved; // has them from its next point on
  int target = 0;                   // smaller from its next point on; 0: not
  int wish = 0;                     // what it asks for
  bool running = false;

  const Shape& shape(size_t nodes) const { return shapes.at(nodes); }
  bool is_changing() const { return target != 0 || not reserved.empty(); }
};

/* The nodes of a job between two changes of its size. */
struct Team {
  std::vector<sg4::Host*> hosts, fresh;
  sg4::BarrierPtr all, among_fresh;
  bool is_first = false, is_resized = false;
  std::vector<char> comes; // by iteration: whether the job comes to the scheduler before it
};

enum class What { submitted, over, at_point, asks };

struct Event {
  What what;
  Job* job;
};

/* SimGrid runs one actor at a time: no locks are needed. */
std::deque<Event> events;
sg4::SemaphorePtr news;
sg4::Host* file_system = nullptr;

void tell(What what, Job* job)
{
  events.push_back({what, job});
  news->release();
}

double share_of(double total, const std::string& spread, size_t nodes, size_t rank)
{
  if (spread == "all_ranks")
    return total / static_cast<double>(nodes);
  if (spread == "uniform")
    return total;
  if (spread == "root_only")
    return rank == 0 ? total : 0.0;
  if (spread == "even_ranks")
    return rank % 2 == 0 ? total / static_cast<double>((nodes + 1) / 2) : 0.0;
  xbt_die("no spread is called %s", spread.c_str());
}

/* What each node sends to each. */
std::vector<double> traffic_of(double total, const std::string& pattern, size_t nodes)
{
  std::vector<double> cells(nodes * nodes, 0.0);
  if (nodes == 1)
    return cells;
  const auto count = static_cast<double>(nodes);
  for (size_t from = 0; from < nodes; from++) {
    const size_t right = (from + 1) % nodes, left = (from + nodes - 1) % nodes;
    if (pattern == "all_to_all") {
      for (size_t to = 0; to < nodes; to++)
        cells[from * nodes + to] = from == to ? 0.0 : total / (count * (count - 1));
    } else if (pattern == "ring") {
      cells[from * nodes + right] += total / (2 * count);
      cells[from * nodes + left] += total / (2 * count);
    } else if (pattern == "ring_clockwise") {
      cells[from * nodes + right] += total / count;
    } else if (pattern == "ring_counter_clockwise") {
      cells[from * nodes + left] += total / count;
    } else if (pattern == "master_worker") { // ElastiSim divides by half of the workers, whatever it means by that
      for (size_t to = 1; from == 0 && to < nodes; to++)
        cells[to] = cells[to * nodes] = total / ((count - 1) / 2);
    } else if (pattern == "gather") {
      cells[from * nodes] = from == 0 ? 0.0 : total / count;
    } else if (pattern == "scatter") {
      cells[from] = from == 0 ? 0.0 : total / count;
    } else {
      xbt_die("no pattern is called %s", pattern.c_str());
    }
  }
  return cells;
}

void transfer(sg4::Host* node, double nbytes, bool reads)
{
  if (nbytes <= 0)
    return;
  std::vector<double> cells(4, 0.0);
  cells[reads ? 2 : 1] = nbytes;
  sg4::this_actor::parallel_execute({node, file_system}, {0.0, 0.0}, cells);
}

void compute(const Task& task, const std::vector<sg4::Host*>& hosts, size_t rank, const sg4::BarrierPtr& barrier)
{
  const size_t nodes = hosts.size();
  std::vector<double> flops(nodes, 0.0);
  for (size_t one = 0; task.work > 0 && one < nodes; one++)
    flops[one] = share_of(task.work, task.spread, nodes, one);
  const bool sends = task.sent > 0 && nodes > 1;
  if (task.coupled && task.sent > 0) {
    if (rank == 0)
      sg4::this_actor::parallel_execute(hosts, flops, traffic_of(task.sent, task.traffic, nodes));
    barrier->wait();
    return;
  }
  sg4::ExecPtr own;
  if (flops[rank] > 0)
    own = hosts[rank]->exec_async(flops[rank]);
  if (sends && rank == 0)
    sg4::this_actor::parallel_execute(hosts, std::vector<double>(nodes, 0.0),
                                      traffic_of(task.sent, task.traffic, nodes));
  if (task.sent > 0)
    barrier->wait();
  if (own)
    own->wait();
}

void perform(const Tasks& tasks, const std::vector<sg4::Host*>& hosts, size_t rank, const sg4::BarrierPtr& barrier)
{
  for (auto const& task : tasks) {
    if (task.kind == "cpu")
      compute(task, hosts, rank, barrier);
    else if (task.kind == "idle")
      sg4::this_actor::sleep_for(share_of(task.work, task.spread, hosts.size(), rank));
    else
      transfer(hosts[rank], share_of(task.work, task.spread, hosts.size(), rank), task.kind == "read");
  }
}

/* One node of a job, until the job is over or comes to the scheduler. */
void play(Job* job, const std::shared_ptr<Team>& team, size_t rank)
{
  const size_t nodes = team->hosts.size();
  const Shape& shape = job->shape(nodes);
  if (team->is_first)
    perform(shape.init, team->hosts, rank, team->all);
  if (team->is_resized)
    perform(shape.resize, team->hosts, rank, team->all);
  team->all->wait();
  const size_t old = nodes - team->fresh.size();
  if (team->is_resized && rank >= old)
    perform(job->shape(team->fresh.size()).growth, team->fresh, rank - old, team->among_fresh);
  const bool may_ask = job->asks && job->kind != "malleable";
  const bool may_change = job->kind != "rigid" && job->kind != "moldable" && (may_ask || job->kind != "evolving");
  for (int round = job->round, first = round; round < job->rounds; round++) {
    const bool is_point = may_change && round > first;
    if (is_point && rank == 0) {
      team->comes[round] = not may_ask || shape.wishes[round] != static_cast<int>(nodes);
      if (may_ask)
        job->wish = shape.wishes[round];
    }
    team->all->wait();
    if (is_point && team->comes[round]) {
      if (rank == 0) {
        job->round = round;
        tell(may_ask ? What::asks : What::at_point, job);
      }
      return;
    }
    perform(shape.round, team->hosts, rank, team->all);
  }
  team->all->wait();
  if (rank == 0)
    tell(What::over, job);
}

enum class Rule { example, point, hold };

class Batch {
  std::vector<sg4::Host*> free_;
  std::deque<Job*> queue_;
  std::vector<Job*> started_; // in order of start
  Rule rule_;
  int left_;

public:
  Batch(std::vector<sg4::Host*> nodes, int jobs, Rule rule) : free_(std::move(nodes)), rule_(rule), left_(jobs) {}

  void operator()()
  {
    while (left_ > 0) {
      news->acquire();
      const Event event = events.front();
      events.pop_front();
      Job* job = event.job;
      if (event.what == What::submitted)
        queue_.push_back(job);
      else if (event.what == What::over)
        ended(job);
      if (event.what == What::submitted || event.what == What::over)
        start_from_the_front();
      else if (event.what == What::asks)
        answer(job);
      else if (rule_ != Rule::hold)
        reserve(job, job->most - size(job));
      give_what_is_left();
      if (event.what == What::at_point || event.what == What::asks) {
        const bool changed = go_on(job);
        if (changed && rule_ != Rule::example) {
          start_from_the_front();
          give_what_is_left();
        }
      }
    }
  }

private:
  static int size(const Job* job) { return static_cast<int>(job->hosts.size()); }
  int idle() const { return static_cast<int>(free_.size()); }

  std::vector<sg4::Host*> take(int count)
  {
    std::vector<sg4::Host*> taken(free_.begin(), free_.begin() + count);
    free_.erase(free_.begin(), free_.begin() + count);
    return taken;
  }

  void give_back(const std::vector<sg4::Host*>& nodes) { free_.insert(free_.end(), nodes.begin(), nodes.end()); }

  void ended(Job* job)
  {
    job->end = sg4::Engine::get_clock();
    job->running = false;
    give_back(job->hosts);
    give_back(job->reserved);
    job->hosts.clear();
    job->reserved.clear();
    started_.erase(std::find(started_.begin(), started_.end(), job));
    left_--;
  }

  void start_from_the_front()
  {
    while (not queue_.empty()) {
      Job* job = queue_.front();
      const int nodes = std::min(job->most, idle());
      if (nodes < job->least)
        return;
      queue_.pop_front();
      started_.push_back(job);
      job->running = true;
      job->start = sg4::Engine::get_clock();
      job->hosts = take(nodes);
      auto team = std::make_shared<Team>();
      team->is_first = true;
      begin(job, team);
    }
  }

  void reserve(Job* job, int count)
  {
    count = std::min(count, idle());
    if (count > 0)
      job->reserved = take(count);
  }

  void answer(Job* job)
  {
    const int more = job->wish - size(job);
    if (more < 0)
      job->target = job->wish;
    else if (more <= idle())
      reserve(job, more);
  }

  void give_what_is_left()
  {
    if (rule_ == Rule::hold)
      for (Job* job : started_)
        if (job->kind == "malleable" && not job->is_changing())
          reserve(job, job->most - size(job));
  }

  /* A job leaves its scheduling point; whether its size has changed. */
  bool go_on(Job* job)
  {
    auto team = std::make_shared<Team>();
    const bool changes = job->is_changing();
    if (changes) {
      team->is_resized = true;
      team->fresh = job->reserved;
      job->hosts.insert(job->hosts.end(), job->reserved.begin(), job->reserved.end());
      if (job->target != 0) {
        give_back({job->hosts.begin() + job->target, job->hosts.end()});
        job->hosts.resize(job->target);
      }
      job->reserved.clear();
      job->target = 0;
    }
    begin(job, team);
    return changes;
  }

  void begin(Job* job, const std::shared_ptr<Team>& team)
  {
    team->hosts = job->hosts;
    team->all = sg4::Barrier::create(static_cast<unsigned>(team->hosts.size()));
    team->among_fresh = sg4::Barrier::create(static_cast<unsigned>(std::max<size_t>(1, team->fresh.size())));
    team->comes.resize(job->rounds);
    for (size_t rank = 0; rank < team->hosts.size(); rank++)
      sg4::Actor::create("node", team->hosts[rank], [job, team, rank]() { play(job, team, rank); });
  }
};

Tasks read_tasks(std::istream& in)
{
  size_t count;
  in >> count;
  Tasks tasks(count);
  for (auto& one : tasks)
    in >> one.kind >> one.work >> one.spread >> one.sent >> one.traffic >> one.coupled;
  return tasks;
}

/* The number of jobs; of each: kind, submission, least and most nodes, iterations, whether it asks; then for each
   size from 1 to the most: four lists of tasks, and if it asks, a wish for each iteration. */
std::vector<Job> read(const char* path)
{
  std::ifstream in(path);
  size_t count;
  in >> count;
  std::vector<Job> jobs(count);
  for (size_t id = 0; id < count; id++) {
    Job& job = jobs[id];
    job.id = static_cast<int>(id);
    in >> job.kind >> job.submit >> job.least >> job.most >> job.rounds >> job.asks;
    job.shapes.resize(job.most + 1);
    for (int size = 1; size <= job.most; size++) {
      Shape& shape = job.shapes[size];
      for (auto* tasks : {&shape.init, &shape.resize, &shape.growth, &shape.round})
        *tasks = read_tasks(in);
      shape.wishes.resize(job.asks ? job.rounds : 0);
      for (auto& wish : shape.wishes)
        in >> wish;
    }
  }
  xbt_assert(in, "%s is not what is expected", path);
  return jobs;
}

} // namespace

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  xbt_assert(argc == 4, "usage: %s PLATFORM JOBS example|point|hold", argv[0]);
  sg4::Engine::set_config("host/model:ptask_L07");
  engine.load_platform(argv[1]);
  std::vector<Job> jobs = read(argv[2]);
  std::vector<sg4::Host*> nodes;
  sg4::Host* desk = nullptr;
  for (sg4::Host* host : engine.get_all_hosts()) {
    if (host->get_property("pfs_host") != nullptr)
      file_system = host;
    else if (host->get_property("batch_system") != nullptr)
      desk = host;
    else
      nodes.push_back(host);
  }
  news = sg4::Semaphore::create(0);
  sg4::Actor::create("submissions", desk, [&jobs]() {
    for (Job& job : jobs) {
      sg4::this_actor::sleep_until(job.submit);
      tell(What::submitted, &job);
    }
  });
  const std::string name = argv[3];
  const Rule rule = name == "example" ? Rule::example : name == "point" ? Rule::point : Rule::hold;
  Batch batch(nodes, static_cast<int>(jobs.size()), rule);
  sg4::Actor::create("batch", desk, [&batch]() { batch(); });
  engine.run();
  std::printf("# SimGrid %d.%d.%d\n", SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR, SIMGRID_VERSION_PATCH);
  for (const Job& job : jobs)
    std::printf("%d,%.9g,%.10g,%.10g\n", job.id, job.submit, job.start, job.end);
  return 0;
}
