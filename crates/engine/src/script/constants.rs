//! Variables that no script assigns are constants of a run: expressions are computed with them
//! once, as far as that goes.

use super::eval::{Value, Variable, Variables};
use super::{Action, Results, Scripts, Slot};

impl Scripts {
    /// Computes what follows from `variables`, except from `own`, which differs between clients.
    pub(crate) fn settle(&mut self, variables: &Variables, own: Option<Slot>) {
        if self.sql().any(|sql| sql.results != Results::Discard) {
            // Their columns are variables, and only the server knows their names.
            return;
        }
        let assigned = self.assigned();
        let known = |slot: Slot| match &variables.0[slot as usize] {
            _ if own == Some(slot) || assigned[slot as usize] => None,
            Variable::Value(value) | Variable::Typed(_, value) => Some(*value),
            Variable::Text(_) | Variable::Unset => None,
        };
        self.expressions(&known);
    }

    /// Whether a command assigns it, for each variable.
    fn assigned(&self) -> Vec<bool> {
        let mut assigned = vec![false; self.names.len()];
        for command in self.list.iter().flat_map(|script| &script.commands) {
            if let Action::Set { variable, .. } | Action::Shell { variable: Some(variable), .. } =
                &command.action
            {
                assigned[*variable as usize] = true;
            }
        }
        assigned
    }

    fn expressions(&mut self, known: &impl Fn(Slot) -> Option<Value>) {
        for command in self.list.iter_mut().flat_map(|script| &mut script.commands) {
            if let Action::Set { value: program, .. }
            | Action::Misnamed { value: program, .. }
            | Action::If { condition: program, .. }
            | Action::Elif { condition: program, .. } = &mut command.action
            {
                *program = program.with(known);
            }
        }
    }
}
