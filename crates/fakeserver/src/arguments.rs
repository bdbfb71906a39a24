//! The command line: words in, a configuration out. Prints nothing and opens nothing.

use std::net::ToSocketAddrs;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pgpaces_fakeserver::{Address, Auth, Config, parse_ms};

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// To print the options.
    Help,
    /// A server, and its control at this address.
    Serve(Box<Config>, Option<Address>),
}

/// Reads the words after the program's name. The error says what was found and what was expected.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Invocation, String> {
    let mut words = words.into_iter();
    let mut config = Config::default();
    let mut control = None;
    while let Some(option) = words.next() {
        if option == "--help" {
            return Ok(Invocation::Help);
        }
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (option, words.next()),
        };
        let value = value.ok_or_else(|| format!("{option}: expected a value"))?;
        let explain = |why| format!("{option} {value}: {why}");
        match option.as_str() {
            "--control" => control = Some(address(&value).map_err(explain)?),
            _ => set(&mut config, &option, &value).map_err(explain)?,
        }
    }
    Ok(Invocation::Serve(Box::new(config), control))
}

fn set(config: &mut Config, option: &str, value: &str) -> Result<(), String> {
    match option {
        "--listen" => config.listen = address(value)?,
        "--unix" => config.listen = Address::Unix(PathBuf::from(value)),
        "--auth" => config.auth = auth(value)?,
        "--user" => config.user = Some(value.to_owned()),
        "--password" => config.password = value.to_owned(),
        "--database" => config.database = Some(value.to_owned()),
        "--max-connections" => config.max_connections = Some(number(value)?),
        "--server-version" => config.server_version = value.to_owned(),
        "--delay-ms" => config.delay = parse_ms(value).map_err(|error| error.to_string())?,
        "--servers" => config.servers = Some(number(value)?),
        "--stall" => config.stalls.push(window(value)?),
        "--seed" => config.seed = number(value)?,
        "--record" => config.record = Some(PathBuf::from(value)),
        _ => return Err("there is no such option; see --help".to_owned()),
    }
    Ok(())
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number".to_owned())
}

fn address(text: &str) -> Result<Address, String> {
    if text.contains('/') {
        return Ok(Address::Unix(PathBuf::from(text)));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.map(Address::Tcp).ok_or_else(|| "expected HOST:PORT".to_owned())
}

fn auth(text: &str) -> Result<Auth, String> {
    Ok(match text {
        "trust" => Auth::Trust,
        "password" => Auth::Password,
        "md5" => Auth::Md5,
        "scram-sha-256" => Auth::ScramSha256,
        "reject" => Auth::Reject,
        _ => return Err("expected trust, password, md5, scram-sha-256 or reject".to_owned()),
    })
}

fn window(text: &str) -> Result<Range<Duration>, String> {
    let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
    text.split_once("..")
        .and_then(|(from, to)| Some(seconds(from)?..seconds(to)?))
        .filter(|window| !window.is_empty())
        .ok_or_else(|| "expected FROM..TO in seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = include_str!("help.txt");

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_documented_option_exists() {
        let options: Vec<&str> =
            HELP.lines().filter_map(|line| line.strip_prefix("  --")?.split(' ').next()).collect();
        assert_eq!(options.len(), 15);
        for option in options.into_iter().filter(|option| *option != "help") {
            let no_value_fits = parse(words(&format!("--{option}")));
            assert_eq!(no_value_fits.unwrap_err(), format!("--{option}: expected a value"));
            let message = parse(words(&format!("--{option} !"))).err().unwrap_or_default();
            assert!(!message.contains("no such option"), "{message}");
        }
    }

    #[test]
    fn a_whole_command_line_is_understood() {
        let line = "--listen 127.0.0.1:5 --delay-ms=2.5 --servers 4 --stall 1..2.5 \
                    --auth scram-sha-256 --control /tmp/c";
        let Ok(Invocation::Serve(config, control)) = parse(words(line)) else { panic!("{line}") };
        assert_eq!(config.listen, Address::Tcp(([127, 0, 0, 1], 5).into()));
        assert_eq!(config.delay, Duration::from_micros(2500));
        assert_eq!(config.servers.map(std::num::NonZeroUsize::get), Some(4));
        assert_eq!(config.stalls, [Duration::from_secs(1)..Duration::from_millis(2500)]);
        assert_eq!(config.auth, Auth::ScramSha256);
        assert_eq!(control, Some(Address::Unix("/tmp/c".into())));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_was_expected() {
        for (line, expected) in [
            ("--nonsense 1", "no such option"),
            ("--servers 0", "whole number"),
            ("--stall 3..2", "FROM..TO"),
            ("--delay-ms -1", "milliseconds"),
            ("--auth maybe", "expected trust"),
            ("--listen here", "HOST:PORT"),
        ] {
            let message = parse(words(line)).unwrap_err();
            assert!(message.starts_with(line) && message.contains(expected), "{message}");
        }
    }
}
