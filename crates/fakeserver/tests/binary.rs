//! The program: what it prints, what ends it, its control lines, its record, and how much memory a
//! long answer takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::client::{VERSION, simple, wait_until};

struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pgpaces-fakeserver"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// The words of the next line it prints.
    fn words(&mut self) -> Vec<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn connect(&mut self) -> TcpStream {
        let words = self.words();
        assert_eq!((words[0].as_str(), words.len()), ("listening", 3));
        TcpStream::connect((words[1].as_str(), words[2].parse().unwrap())).unwrap()
    }

    /// Closes its standard input and tells whether it then ends well.
    fn ends_with_its_input(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().success()
    }
}

fn log_in(stream: &mut (impl Read + Write)) {
    let startup = [&16_u32.to_be_bytes()[..], &VERSION.to_be_bytes(), b"user\0u\0\0"].concat();
    let startup = [&(startup.len() as u32).to_be_bytes(), &startup[4..]].concat();
    stream.write_all(&startup).unwrap();
    read_answer(stream);
}

/// Reads until ReadyForQuery is the last thing that came; how many bytes came.
fn read_answer(stream: &mut impl Read) -> usize {
    let (mut total, mut buffer, mut last) = (0, vec![0; 1 << 20], Vec::new());
    while !last.ends_with(b"Z\0\0\0\x05I") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the connection ended after {total} bytes");
        total += count;
        last.extend_from_slice(&buffer[count.saturating_sub(6)..count]);
        last.drain(..last.len().saturating_sub(6));
    }
    total
}

/// Asks one simple query; how many bytes the answer took.
fn ask(stream: &mut (impl Read + Write), sql: &str) -> usize {
    stream.write_all(&simple(sql)).unwrap();
    read_answer(stream)
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pgpaces-fakeserver-{}-{name}", std::process::id()))
}

#[test]
fn it_serves_until_its_standard_input_ends() {
    let mut program = Program::start(&[]);
    let mut stream = program.connect();
    log_in(&mut stream);
    ask(&mut stream, "SELECT 1");
    assert!(program.ends_with_its_input());
}

#[test]
fn sigterm_ends_it() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut program = Program::start(&[]);
    program.words();
    kill_process(Pid::from_child(&program.child), Signal::TERM).unwrap();
    assert!(!program.child.wait().unwrap().success());
}

#[test]
fn a_wrong_option_is_explained_and_help_names_the_statements() {
    let run = |argument| {
        Command::new(env!("CARGO_BIN_EXE_pgpaces-fakeserver")).arg(argument).output().unwrap()
    };
    let wrong = run("--sleep=5");
    assert!(!wrong.status.success());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--sleep 5: there is no such option"));
    assert!(String::from_utf8_lossy(&run("--help").stdout).contains("fake_exponential"));
}

#[test]
fn it_listens_at_a_unix_socket_and_takes_over_an_abandoned_one() {
    let path = scratch("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut program = Program::start(&["--unix", path.to_str().unwrap()]);
    assert_eq!(program.words(), ["listening", path.to_str().unwrap()]);
    let mut stream = UnixStream::connect(&path).unwrap();
    log_in(&mut stream);
    assert!(ask(&mut stream, "SELECT fake_rows(1000, 1000)") > 1_000_000);
    assert!(program.ends_with_its_input());
    assert!(!path.exists());
}

#[test]
fn control_lines_steer_it() {
    let mut program = Program::start(&["--control", "127.0.0.1:0"]);
    let mut stream = program.connect();
    let words = program.words();
    assert_eq!(words[0], "control");
    let control = TcpStream::connect((words[1].as_str(), words[2].parse().unwrap())).unwrap();
    let mut replies = BufReader::new(&control).lines();
    let mut tell = |line: &str| {
        writeln!(&mut &control, "{line}").unwrap();
        replies.next().unwrap().unwrap()
    };
    log_in(&mut stream);
    assert_eq!(tell("stall"), "ok");
    stream.write_all(&simple("SELECT 'a\"b'")).unwrap();
    wait_until(|| tell("stats").contains(r#""queries": {"SELECT 'a\"b'": 1}"#));
    assert_eq!(tell("thaw"), "ok");
    read_answer(&mut stream);
    assert!(tell("log").contains(r#""manner": "simple""#));
    for line in ["delay 2.5", "refuse", "accept", "drop-all"] {
        assert_eq!(tell(line), "ok", "{line}");
    }
    assert!(tell("delay soon").starts_with("error soon: expected milliseconds"));
    assert!(tell("melt").starts_with("error expected stall"));
}

#[test]
fn every_text_is_recorded_as_soon_as_it_is_answered() {
    let path = scratch("record");
    let mut program = Program::start(&["--record", path.to_str().unwrap()]);
    let mut stream = program.connect();
    log_in(&mut stream);
    ask(&mut stream, "SELECT 1; SELECT 'two\n'");
    assert!(program.ends_with_its_input());
    let record = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(record.lines().count(), 1);
    assert!(record.contains(r#""sql": "SELECT 1; SELECT 'two\n'", "parameters": []"#), "{record}");
}

/// The most memory that a process has had in bytes.
#[cfg(target_os = "linux")]
fn peak_memory(child: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn a_row_of_256_mb_takes_little_memory() {
    let mut program = Program::start(&[]);
    let mut stream = program.connect();
    log_in(&mut stream);
    assert!(ask(&mut stream, "SELECT fake_rows(1, 268435456)") > 268_435_456);
    let peak = peak_memory(&program.child);
    assert!(peak < 32 << 20, "{peak} bytes");
}
