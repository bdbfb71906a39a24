//! How long each command of a script took, where that is asked for of meta commands too.

use crate::support::backend::ready;
use crate::support::desk::Desk;
use crate::support::trial::{plan, run};
use crate::support::world::{Answer, Server};
use pgpaces_engine::client::ShellEnd;
use pgpaces_engine::pace::{Ns, Think};
use pgpaces_engine::plan::{Load, Plan, Protocol, Stop};
use std::collections::BTreeMap;

const MS: Ns = 1_000_000;

fn timing(protocol: Protocol) -> Plan {
    let load = Load::Closed { think: Think::None };
    Plan { time_commands: true, protocol, stop: Stop::Count(10), ..plan(load) }
}

/// How often each command was timed, and their times' sum in milliseconds.
fn times(plan: &Plan, script: &str) -> BTreeMap<u16, (u64, u128)> {
    let mut server = Server::new(|_| Answer::Rows(MS));
    server.shells =
        Box::new(|_| (20 * MS, ShellEnd { succeeded: true, line: Some(b"7".to_vec()) }));
    let seen = run(plan, &[(1, script)], server);
    let mut found: BTreeMap<u16, (u64, u128)> = BTreeMap::new();
    for statement in seen.intervals().iter().flat_map(|i| &i.statements) {
        let sum = found.entry(statement.command).or_default();
        sum.0 += statement.times.count;
        sum.1 += statement.times.sum_ns / 1_000_000;
    }
    found
}

#[test]
fn every_command_that_was_run_is_timed_and_no_other() {
    let script = "\\set x 1\n\\sleep 5 ms\n\\if :x = 2\nSELECT never;\n\\else\nSELECT 1;\n\
                  \\endif\n\\shell a\n\\setshell y b\nSELECT :y;";
    let mut expected: BTreeMap<u16, (u64, u128)> =
        (0..10).filter(|n| *n != 3).map(|n| (n, (10, 0))).collect();
    for (command, sum) in [(1, 50), (5, 10), (7, 200), (8, 200), (9, 10)] {
        expected.insert(command, (10, sum));
    }
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        assert_eq!(times(&timing(protocol), script), expected, "{protocol:?}");
        let plan = Plan { time_commands: false, ..timing(protocol) };
        let sql = BTreeMap::from([(5, (10, 10)), (9, (10, 10))]);
        assert_eq!(times(&plan, script), sql, "{protocol:?}");
    }
}

#[test]
fn timing_meta_commands_changes_no_transaction() {
    let script = "\\set x 1\n\\sleep 5 ms\nSELECT :x;\n\\shell a";
    for time_commands in [false, true] {
        let plan = Plan { time_commands, ..timing(Protocol::Simple) };
        let mut server = Server::new(|_| Answer::Rows(MS));
        server.shells = Box::new(|_| (20 * MS, ShellEnd { succeeded: true, line: None }));
        assert_eq!(run(&plan, &[(1, script)], server).latencies(), [26 * MS; 10]);
    }
}

#[test]
fn a_pipelines_statements_cost_nothing_and_its_end_the_answer() {
    let script = "\\startpipeline\nSELECT 1;\nSELECT 2;\n\\endpipeline";
    for protocol in [Protocol::Extended, Protocol::Prepared] {
        let expected = BTreeMap::from([(0, (10, 0)), (1, (10, 0)), (2, (10, 0)), (3, (10, 20))]);
        assert_eq!(times(&timing(protocol), script), expected, "{protocol:?}");
    }
}

#[test]
fn preparing_a_pipeline_is_part_of_its_beginning() {
    let script = "\\startpipeline\nSELECT 1;\n\\endpipeline";
    let mut desk = Desk::new(&timing(Protocol::Prepared), script);
    desk.start().expect("a script that runs");
    desk.now = 4 * MS;
    desk.receive(&ready(b'I')).expect("an answer that fits");
    let [first, ..] = desk.record.batch.timings[..] else { panic!("nothing was timed") };
    assert_eq!((first.command, first.ns), (0, 4 * MS));
}
