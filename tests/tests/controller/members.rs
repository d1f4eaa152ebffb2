//! Jobs of a controller whose members come and go, that change while they run, and whose server has a spare: thc-ps, workers and
//! controllers are processes, and are killed.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use thc_tests::followed::{Followed, Step};
use thc_tests::ready::Ready;
use thc_tests::write_gradients;

/// Sessions of 1 to 3 workers to begin with.
const SIZES: [&str; 8] =
    ["--min-workers", "1", "--max-workers", "3", "--gone-after", "3s", "--gather", "500ms"];

/// Two thc-ps, and one or two controllers of them with one file.
struct Cast {
    servers: Vec<Ready>,
    controllers: Vec<Ready>,
    /// Where the controllers are.
    at: Vec<String>,
    inputs: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Cast {
    fn start(controllers: usize) -> Cast {
        let folder = tempfile::tempdir().unwrap();
        let first = thc_tests::free_ports(4 + controllers as u16);
        let address = |place: u16| format!("127.0.0.1:{}", first + place);
        let (mut targets, mut servers) = (String::new(), Vec::new());
        for (number, place) in [(1, 0), (2, 2)] {
            let mut server = Command::new(thc_tests::binary("thc-ps"));
            server.args(["--listen", &address(place), "--p4runtime", &address(place + 1), "--shards", "1"]);
            servers.push(Ready::start(server));
            targets += &format!(
                "[[target]]\nname = \"ps{number}\"\naddress = \"http://{}\"\nip = \"127.0.0.1\"\nudp_port = {}\n",
                address(place + 1),
                first + place
            );
        }
        let state = folder.path().join("state");
        let at: Vec<String> = (0..controllers as u16).map(|n| address(4 + n)).collect();
        let start = |at: &String| {
            let config = folder.path().join(format!("{}.toml", at.replace(':', "-")));
            let text = format!("[controller]\nlisten = \"{at}\"\nstate = \"{}\"\n{targets}", state.display());
            std::fs::write(&config, text).unwrap();
            let mut controller = Command::new(thc_tests::binary("thc-controller"));
            controller.args(["run", "--config", config.to_str().unwrap()]);
            Ready::start(controller)
        };
        let controllers = at.iter().map(start).collect();
        let inputs = write_gradients(folder.path(), 5, 200_000);
        let cast = Cast { servers, controllers, at, inputs, _folder: folder };
        cast.wait_until(0, &["target", "list"], |said| said.matches("connected").count() == 2);
        cast
    }

    /// What a controller says, and whether it did as it was asked.
    fn ask(&self, controller: usize, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(thc_tests::binary("thc-controller"));
        let out = command.args(words).args(["--controller", &self.at[controller]]).output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8(said).unwrap())
    }

    /// The same of the first one, which must do it.
    fn does(&self, words: &[&str]) -> String {
        let (done, said) = self.ask(0, words);
        assert!(done, "{said}");
        said
    }

    /// It must refuse it, in a line that says so.
    fn refuses(&self, words: &[&str], says: &str) {
        let (done, said) = self.ask(0, words);
        assert!(!done && said.contains(says) && said.trim().lines().count() == 1, "{said}");
    }

    /// Asks until it is so.
    fn wait_until(&self, controller: usize, words: &[&str], so: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let (_, said) = self.ask(controller, words);
            if so(&said) {
                return said;
            }
            let late = started.elapsed() > thc_tests::HANG;
            let logs: Vec<String> = self.controllers.iter().chain(&self.servers).map(Ready::log).collect();
            assert!(!late, "{said}{}", logs.join("\n---\n"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn shows(&self, controller: usize, says: &str) -> String {
        self.wait_until(controller, &["job", "show", "train"], |said| said.contains(says))
    }

    fn worker(&self, input: usize, seat: usize) -> Followed {
        let urls: Vec<String> = self.at.iter().map(|at| format!("thc://{at}/train")).collect();
        // Who comes asks the controller that is there last.
        let flags =
            ["--ps", urls.last().unwrap(), "--input", self.inputs[input].to_str().unwrap(), "--rejoin"];
        let seat = seat.to_string();
        let more = ["--worker", &seat, "--repeat", "100000", "--error-feedback", "--timeout", "30s"];
        Followed::start(None, &flags.iter().chain(&more).map(|&flag| flag.to_owned()).collect::<Vec<_>>())
    }
}

/// Workers and what each has finished.
struct Crew {
    workers: Vec<(usize, Followed)>,
    steps: Vec<Vec<Step>>,
}

impl Crew {
    fn start(cast: &Cast, inputs: &[usize]) -> Crew {
        let workers = inputs.iter().map(|&input| (input, cast.worker(input, input))).collect();
        let mut crew = Crew { workers, steps: vec![Vec::new(); 5] };
        crew.go_on(cast, 4);
        crew
    }

    /// Until each has finished so many more.
    fn go_on(&mut self, cast: &Cast, more: usize) {
        let before: Vec<usize> = self.steps.iter().map(Vec::len).collect();
        let started = Instant::now();
        loop {
            self.workers.iter().for_each(|(i, worker)| self.steps[*i].extend(worker.steps()));
            if self.workers.iter().all(|(i, _)| self.steps[*i].len() >= before[*i] + more) {
                return;
            }
            let done: Vec<usize> = self.steps.iter().map(Vec::len).collect();
            let logs: Vec<String> = cast.controllers.iter().chain(&cast.servers).map(Ready::log).collect();
            assert!(started.elapsed() < thc_tests::HANG, "{before:?} {done:?}\n{}", logs.join("\n---\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self, input: usize) {
        let place = self.workers.iter().position(|(i, _)| *i == input).unwrap();
        self.workers.remove(place).1.kill();
    }

    fn add_worker(&mut self, cast: &Cast, input: usize, seat: usize) {
        self.workers.push((input, cast.worker(input, seat)));
        self.go_on(cast, 4);
    }

    /// Whoever finished the same all-reduce has the same mean.
    fn assert_same(&self, one: usize, other: usize) {
        let sums = |i: usize| self.steps[i].iter().map(|step| step.checksum.as_str()).collect::<Vec<_>>();
        let (early, late) = (sums(one), sums(other));
        let first = early.iter().position(|sum| *sum == late[0]).unwrap();
        let both = late.len().min(early.len() - first);
        assert!(both > 4 && early[first..first + both] == late[..both], "{one} and {other}");
    }
}

#[test]
fn members_come_and_go_and_the_job_changes_while_they_run() {
    let cast = Cast::start(1);
    let said = cast.does(&[&["job", "create", "train", "--target", "ps1"], &SIZES[..]].concat());
    assert!(said.contains("workers  1 to 3\n"), "{said}");
    assert!(said.contains("members  gone after 3s, the first session waits 500ms for more"), "{said}");
    let mut crew = Crew::start(&cast, &[0, 1, 2]);
    cast.shows(0, "3 workers, 0, 1, 2 in the job, on ps1");
    let list = cast.does(&["job", "list"]);
    assert!(list.contains("running   3/1-3"), "{list}");
    // A fourth has no place, until there may be more: the session ends at a boundary for that, and all go on.
    let full = cast.worker(3, 3).finish();
    assert!(full.err.contains("job train has the workers 0 to 2"), "{full:?}");
    cast.does(&["job", "update", "train", "--max-workers", "4", "--gone-after", "2s"]);
    cast.shows(0, "workers  1 to 4\n");
    crew.go_on(&cast, 4);
    crew.add_worker(&cast, 3, 3);
    cast.shows(0, "4 workers, 0, 1, 2, 3 in the job");
    // Another table, for all sizes.
    cast.does(&["job", "update", "train", "--granularity", "20", "--fraction", "1/32"]);
    cast.shows(0, "b=4 g=20 p=1/32");
    crew.go_on(&cast, 4);
    // One is killed: the others go on with one fewer, and another comes in its place.
    crew.kill(1);
    crew.go_on(&cast, 4);
    cast.shows(0, "3 workers, 0, 2, 3 in the job");
    crew.add_worker(&cast, 4, 1);
    crew.go_on(&cast, 4);
    cast.shows(0, "4 workers, 0, 1, 2, 3 in the job");
    for other in [2, 3, 4] {
        crew.assert_same(0, other);
    }
    // What those who are there have no place in is refused, and other jobs change while nobody is in them.
    cast.refuses(&["job", "update", "train", "--max-workers", "2"], "worker 2 is in its session on ps1");
    cast.refuses(&["job", "update", "train", "--workers", "4"], "keep min_workers below max_workers");
    cast.refuses(
        &["job", "update", "train", "--granularity", "100", "--fraction", "1/32"],
        "does not fit lanes",
    );
    cast.refuses(&["job", "update", "train", "--gather", "1ms"], "use 100ms to 1h");
    cast.refuses(&["job", "update", "none", "--gather", "2s"], "there is no job \"none\"");
    cast.refuses(&["job", "update", "train"], "job train: nothing to change: give --min-workers");
    cast.does(&["job", "create", "fixed", "--workers", "2", "--target", "ps2"]);
    let said = cast.does(&["job", "update", "fixed", "--workers", "3"]);
    assert!(said.contains("workers  3\n"), "{said}");
    let said = cast.does(&["job", "update", "fixed", "--max-workers", "4"]);
    assert!(said.contains("workers  1 to 4\n"), "{said}");
    crew.go_on(&cast, 2);
    drop(crew);
    cast.wait_until(0, &["job", "show", "train"], |said| !said.contains("session  epoch"));
    cast.does(&["job", "update", "train", "--workers", "2"]);
    cast.shows(0, "workers  2\n");
}

#[test]
fn a_spare_completes_what_the_server_of_a_job_left_and_may_be_named_while_it_runs() {
    let mut cast = Cast::start(1);
    let create = ["job", "create", "train", "--target", "ps1", "--spares"];
    cast.refuses(
        &[&create[..], &["ps1"], &SIZES[..]].concat(),
        "spares names ps1, which has a place already",
    );
    cast.refuses(&["job", "create", "x", "--workers", "2", "--spares", "ps2"], "name that target");
    cast.does(&[&create[..5], &SIZES[..]].concat());
    let mut crew = Crew::start(&cast, &[0, 1, 2]);
    let said = cast.does(&["job", "update", "train", "--spares", "ps2"]);
    assert!(said.contains("ps2"), "{said}");
    cast.shows(0, "spares   ps2\n");
    crew.go_on(&cast, 4);
    cast.shows(0, "3 workers, 0, 1, 2 in the job, on ps2");
    // Of another size, too.
    crew.kill(1);
    crew.go_on(&cast, 4);
    cast.shows(0, "2 workers, 0, 2 in the job, on ps2");
    cast.servers[0].kill();
    crew.go_on(&cast, 10);
    // It is back: members come and go as before.
    cast.servers[0].kill_and_restart();
    cast.wait_until(0, &["target", "list"], |said| said.matches("connected").count() == 2);
    crew.add_worker(&cast, 3, 1);
    cast.shows(0, "3 workers, 0, 1, 2 in the job, on ps1");
    crew.go_on(&cast, 4);
    crew.assert_same(0, 2);
    crew.assert_same(0, 3);
    // And without a spare again.
    cast.does(&["job", "update", "train", "--spares", "none"]);
    cast.wait_until(0, &["job", "show", "train"], |said| !said.contains("ps2"));
    crew.go_on(&cast, 4);
    crew.assert_same(0, 2);
}

#[test]
fn the_other_controller_of_a_pair_has_members_and_changes() {
    let mut cast = Cast::start(2);
    cast.does(&[&["job", "create", "train", "--target", "ps1"], &SIZES[..]].concat());
    let (done, said) = cast.ask(1, &["job", "update", "train", "--max-workers", "4"]);
    assert!(!done && said.contains("stands by"), "{said}");
    // Workers ask the second controller last: the first one is the one that lets them in now.
    cast.at.reverse();
    let mut crew = Crew::start(&cast, &[0, 1, 2]);
    cast.at.reverse();
    let epoch = |said: &str| -> u32 {
        let at = said.find("session  epoch ").unwrap() + "session  epoch ".len();
        said[at..].split(':').next().unwrap().parse().unwrap()
    };
    let before = epoch(&cast.shows(0, "3 workers, 0, 1, 2 in the job"));
    // It is killed as soon as it has said that the job changes.
    cast.does(&["job", "update", "train", "--max-workers", "4"]);
    cast.controllers[0].kill();
    let said = cast.shows(1, "workers  1 to 4\n");
    crew.go_on(&cast, 4);
    let said = if said.contains("epoch") { said } else { cast.shows(1, "session  epoch") };
    assert!(epoch(&said) > before, "{before}: {said}");
    crew.kill(1);
    crew.go_on(&cast, 4);
    let now = epoch(&cast.shows(1, "2 workers, 0, 2 in the job"));
    assert_eq!(now, epoch(&said) + 1);
    crew.add_worker(&cast, 3, 1);
    crew.go_on(&cast, 4);
    cast.shows(1, "3 workers, 0, 1, 2 in the job");
    crew.assert_same(0, 2);
    crew.assert_same(0, 3);
    assert!(!cast.controllers[1].log().contains("must join anew"), "{}", cast.controllers[1].log());
}
