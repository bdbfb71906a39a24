//! What the language means, as tables. `tests/conformance` holds the same against pgbench.

mod branches;
mod errors;
mod properties;
mod reference;
mod statements;
mod values;

use super::eval::{Program, Scope, Value, Variable, Variables};
use super::random::Random;
use super::{Action, Script, Scripts};
use crate::error::Error;

/// The only script of what `text` parses to.
fn parse(text: &[u8]) -> Result<(Scripts, Script), String> {
    let mut scripts = Scripts::default();
    scripts.add("t", 1, text).map_err(words)?;
    let script = scripts.list[0].clone();
    Ok((scripts, script))
}

/// The words of an error that pgbench defines.
fn words(error: Error) -> String {
    match error.value("text") {
        Some(crate::error::Value::Text(text)) => text.clone(),
        _ => error.to_string(),
    }
}

/// A client that runs the meta commands of a script and notes what it would send.
struct Client {
    scripts: Scripts,
    variables: Variables,
    random: Random,
    debug: Vec<Value>,
}

impl Client {
    fn new(text: &str) -> Result<(Self, Script), String> {
        let (mut scripts, script) = parse(text.as_bytes())?;
        let given: [(&[u8], &str); 5] =
            [(b"i", "42"), (b"d", "2.5"), (b"t", "yes"), (b"z", "null"), (b"word", "twelve")];
        for (name, _) in given {
            scripts.names.slot(name);
        }
        let mut variables = Variables(vec![Variable::Unset; scripts.names.len()]);
        for (name, text) in given {
            variables.set_text(scripts.names.slot(name), text.as_bytes());
        }
        let random = Random::from_seed(1);
        Ok((Self { scripts, variables, random, debug: Vec::new() }, script))
    }

    fn eval(&mut self, program: &Program) -> Result<Value, String> {
        let mut scope = Scope {
            variables: &self.variables,
            names: &self.scripts.names,
            random: &mut self.random,
            debug: &mut self.debug,
        };
        scope.eval(program)
    }

    fn text(&self, name: &str) -> String {
        let mut out = Vec::new();
        let slot = self.scripts.names.find(name.as_bytes()).expect("a name of the script");
        self.variables.write(slot, &mut out);
        String::from_utf8(out).expect("values are ASCII")
    }
}

/// The text of variable `x` after the script's `\set` lines.
fn run(text: &str) -> Result<String, String> {
    let (mut client, script) = Client::new(text)?;
    for command in &script.commands {
        if let Action::Set { variable, value } = &command.action {
            let value = client.eval(value)?;
            client.variables.set(*variable, value);
        }
    }
    Ok(client.text("x"))
}
