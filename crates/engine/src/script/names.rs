//! The names of variables and their slots. Knows nothing of values.

use super::Slot;
use std::collections::HashMap;

/// The names of variables and their slots.
#[derive(Debug, Clone, Default)]
pub struct Names {
    slots: HashMap<Box<[u8]>, Slot>,
    names: Vec<Box<[u8]>>,
}

impl Names {
    /// The slot of `name`, a new one if it has none yet. A name that cannot be a variable's is
    /// given one too: nothing ever sets it.
    pub fn slot(&mut self, name: &[u8]) -> Slot {
        if let Some(slot) = self.find(name) {
            return slot;
        }
        let slot = Slot::try_from(self.names.len()).expect("fewer than 2^32 variables");
        self.slots.insert(name.into(), slot);
        self.names.push(name.into());
        slot
    }

    /// The slot of `name`, if it has one.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    /// The name of a slot.
    #[must_use]
    pub fn name(&self, slot: Slot) -> &[u8] {
        &self.names[slot as usize]
    }

    /// How many slots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if no variable is mentioned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// True if `name` can be a variable: letters, digits, underscores and bytes above 127, not
/// starting with a digit.
#[must_use]
pub fn is_variable_name(name: &[u8]) -> bool {
    name.first().is_some_and(|&byte| is_name_start(byte)) && name.iter().all(|&b| is_name_byte(b))
}

/// True for what a name may begin with.
pub(super) const fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

/// True for what a name may hold.
pub(super) const fn is_name_byte(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit()
}

/// Why a command cannot assign a variable that cannot be called so.
pub(crate) fn misnamed(command: &str, name: &[u8]) -> String {
    format!("{command}: invalid variable name: \"{}\"", String::from_utf8_lossy(name))
}

/// How many bytes at the start of `text` can stand in a name.
pub(super) fn name_length(text: &[u8]) -> usize {
    text.iter().position(|&byte| !is_name_byte(byte)).unwrap_or(text.len())
}
