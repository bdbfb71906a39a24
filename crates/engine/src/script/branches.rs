//! Ties `\if`, `\elif`, `\else` and `\endif` together: each learns where to go on.

use super::{Action, Command};

/// An `\if` that waits for its `\endif`.
struct Open {
    /// The `\if` or last `\elif`, which goes to the next branch where its condition fails; none
    /// after `\else`.
    undecided: Option<usize>,
    /// The branches that end before the next one begins.
    branches: Vec<usize>,
}

/// What is wrong, with the number of the command from 1.
type Unmatched = (usize, &'static str);

/// Fills in the places that branches go to.
pub(super) fn link(commands: &mut [Command]) -> Result<(), Unmatched> {
    let mut open: Vec<Open> = Vec::new();
    for place in 0..commands.len() {
        let number = place + 1;
        match commands[place].action {
            Action::If { .. } => {
                open.push(Open { undecided: Some(place), branches: Vec::new() });
            }
            Action::Elif { .. } => {
                let last = open.last_mut().ok_or((number, "\\elif without matching \\if"))?;
                let undecided =
                    last.undecided.replace(place).ok_or((number, "\\elif after \\else"))?;
                last.branches.push(place);
                fail_to(&mut commands[undecided], place);
            }
            Action::Else { .. } => {
                let last = open.last_mut().ok_or((number, "\\else without matching \\if"))?;
                let undecided = last.undecided.take().ok_or((number, "\\else after \\else"))?;
                last.branches.push(place);
                fail_to(&mut commands[undecided], place);
            }
            Action::EndIf => {
                let last = open.pop().ok_or((number, "\\endif without matching \\if"))?;
                if let Some(undecided) = last.undecided {
                    fail_to(&mut commands[undecided], place);
                }
                for branch in last.branches {
                    end_at(&mut commands[branch], place);
                }
            }
            _ => {}
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err((commands.len() + 1, "\\if without matching \\endif"))
    }
}

fn fail_to(command: &mut Command, place: usize) {
    if let Action::If { otherwise, .. } | Action::Elif { otherwise, .. } = &mut command.action {
        *otherwise = number(place);
    }
}

fn end_at(command: &mut Command, place: usize) {
    if let Action::Elif { end, .. } | Action::Else { end } = &mut command.action {
        *end = number(place);
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2^32 commands")
}
