//! Any bytes are a script or an error; what a script computes is a value or an error. Nothing
//! panics, overflows the stack or takes more than linear time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgpaces_engine::script::eval::{Program, Scope, Value, Variable, Variables};
use pgpaces_engine::script::random::Random;
use pgpaces_engine::script::{Action, Command, Piece, Scripts};

fuzz_target!(|text: &[u8]| {
    let mut scripts = Scripts::default();
    if scripts.add("fuzz", 1, text).is_ok() {
        let _ = scripts.check_parameters();
        run(&scripts);
    }
});

/// Runs every command once, whatever the branches say.
fn run(scripts: &Scripts) {
    let mut variables = Variables(vec![Variable::Unset; scripts.names.len()]);
    let mut random = Random::from_seed(5432);
    let commands = &scripts.list[0].commands;
    for command in commands {
        assert!(!command.text.contains('\n') || !matches!(command.action, Action::Sql(_)));
        match &command.action {
            Action::Set { variable, value } => {
                if let Some(value) = eval(scripts, &variables, &mut random, value) {
                    variables.set(*variable, value);
                } else {
                    variables.set_text(*variable, command.text.as_bytes());
                }
            }
            Action::If { condition, otherwise } => {
                eval(scripts, &variables, &mut random, condition);
                assert!(is_branch(&commands[*otherwise as usize]));
            }
            Action::Elif { condition, otherwise, end } => {
                eval(scripts, &variables, &mut random, condition);
                assert!(is_branch(&commands[*otherwise as usize]));
                assert!(matches!(commands[*end as usize].action, Action::EndIf));
            }
            Action::Sql(sql) => {
                let mut out = Vec::new();
                for piece in &sql.pieces {
                    if let Piece::Variable(slot) = piece {
                        variables.write(*slot, &mut out);
                    }
                }
                let parameters = sql.pieces.iter().filter(|p| matches!(p, Piece::Variable(_)));
                assert_eq!(parameters.count(), sql.parameters.len());
                assert!(sql.id < scripts.statements);
            }
            _ => {}
        }
    }
}

fn is_branch(command: &Command) -> bool {
    matches!(command.action, Action::Elif { .. } | Action::Else { .. } | Action::EndIf)
}

fn eval(
    scripts: &Scripts,
    variables: &Variables,
    random: &mut Random,
    program: &Program,
) -> Option<Value> {
    let mut debug = Vec::new();
    let mut scope = Scope { variables, names: &scripts.names, random, debug: &mut debug };
    scope.eval(program).ok()
}
