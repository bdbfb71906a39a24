//! The fake PostgreSQL server as a program, for tests and benchmarks that are not written in Rust.

mod arguments;

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use arguments::Invocation;
use pgpaces_fakeserver::{Address, Config, FakeServer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    let outcome = match arguments::parse(std::env::args().skip(1)) {
        Ok(Invocation::Help) => io::stdout().write_all(include_bytes!("help.txt")),
        Ok(Invocation::Serve(config, control)) => serve(*config, control),
        Err(message) => Err(io::Error::new(io::ErrorKind::InvalidInput, message)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pgpaces-fakeserver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: Config, control: Option<Address>) -> io::Result<()> {
    raise_file_limit();
    let server = FakeServer::start(config)?;
    let mut stdout = io::stdout();
    writeln!(stdout, "listening {}", server.address())?;
    if let Some(address) = control {
        writeln!(stdout, "control {}", server.control().listen(&address)?)?;
    }
    stdout.flush()?;
    let control = server.control().clone();
    thread::spawn(move || {
        // However standard input ends, the server ends with it.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        control.stop()
    });
    server.wait()
}

/// Allows as many open files as the system lets us: each connection is one.
fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, fewer connections can be served.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
