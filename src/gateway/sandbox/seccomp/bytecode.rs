//! Classic BPF for the system call filter: instructions, and how a rule becomes instructions. It knows no call by
//! name.

use libc::c_long;

use super::OFFSET_NUMBER;
use super::conditional::{ArgumentCondition, CREATES, SET_GROUP_ID, SET_ID, SET_USER_ID, SUPERVISOR};
use super::families::{FAMILIES, Protocol};
use super::notified::{NotifiedRule, Otherwise};

/// Code, jumps if true and if false, value.
type Instruction = (u16, u8, u8, u32);

pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_AT_LEAST: u16 = 0x35;
pub(super) const JUMP_IF_ANY_BIT: u16 = 0x45;
pub(super) const RETURN: u16 = 0x06;

pub(super) const ALLOW: u32 = 0x7fff_0000;
pub(super) const KILL_PROCESS: u32 = 0x8000_0000;
/// `SECCOMP_RET_USER_NOTIF`.
pub(super) const NOTIFY: u32 = 0x7fc0_0000;

pub(super) const fn errno(number: i32) -> u32 {
    0x0005_0000 | number.cast_unsigned()
}

/// Offset of the lower half of an argument. Both machines are little-endian; the upper half of what is looked at
/// here is ignored by the kernel too (modes, flags and commands are 32 bits).
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

#[derive(Default)]
pub(super) struct FilterBuilder(Vec<u8>);

impl FilterBuilder {
    pub(super) fn push(&mut self, code: u16, if_true: u8, if_false: u8, value: u32) {
        self.0.extend_from_slice(&code.to_ne_bytes());
        self.0.extend_from_slice(&[if_true, if_false]);
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    pub(super) fn refuse(&mut self, call: c_long, with: i32) {
        self.push(JUMP_EQUAL, 0, 1, number(call));
        self.push(RETURN, 0, 0, errno(with));
    }

    /// The call's number is in the accumulator before and, for another call, after.
    pub(super) fn notify(&mut self, notified: &NotifiedRule) {
        let instructions = 2 * notified.unless.len() as u8 + 2;
        self.push(JUMP_EQUAL, 0, instructions, number(notified.call));
        for (index, word) in (0..).zip(&notified.unless) {
            self.push(LOAD, 0, 0, argument(notified.first_register) + 4 * index);
            let to_notify = instructions - 2 * index as u8 - 3;
            self.push(JUMP_EQUAL, 0, to_notify, *word);
        }
        self.push(RETURN, 0, 0, ALLOW);
        match notified.otherwise {
            Otherwise::Notified => self.push(RETURN, 0, 0, NOTIFY),
            Otherwise::Absent => self.push(RETURN, 0, 0, errno(libc::ENOSYS)),
            Otherwise::Ruled => self.push(LOAD, 0, 0, OFFSET_NUMBER),
        }
    }

    /// The call's number is in the accumulator before and, when the rule is for another call, after.
    pub(super) fn rule(&mut self, call: c_long, when: ArgumentCondition) {
        let refuse = (RETURN, 0, 0, errno(libc::EPERM));
        let allow = (RETURN, 0, 0, ALLOW);
        let body: Vec<Instruction> = match when {
            ArgumentCondition::AnyBit { index, bits } => {
                vec![(LOAD, 0, 0, argument(index)), (JUMP_IF_ANY_BIT, 0, 1, bits), refuse, allow]
            }
            ArgumentCondition::ChangedMode { index } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_IF_ANY_BIT, 2, 0, SET_USER_ID),
                (JUMP_IF_ANY_BIT, 0, 2, SET_GROUP_ID),
                (RETURN, 0, 0, NOTIFY),
                refuse,
                allow,
            ],
            ArgumentCondition::AnyBitOrNotified { index, bits, notified, unless } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_IF_ANY_BIT, 3, 0, bits),
                (JUMP_IF_ANY_BIT, 0, 3, notified),
                (JUMP_IF_ANY_BIT, 2, 0, unless),
                (RETURN, 0, 0, NOTIFY),
                refuse,
                allow,
            ],
            ArgumentCondition::AnyBitOrLacking { index, bits, lacking } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_IF_ANY_BIT, 1, 0, bits),
                (JUMP_IF_ANY_BIT, 1, 0, lacking),
                refuse,
                allow,
            ],
            ArgumentCondition::Creating { flags, mode } => vec![
                (LOAD, 0, 0, argument(flags)),
                (JUMP_IF_ANY_BIT, 0, 3, CREATES),
                (LOAD, 0, 0, argument(mode)),
                (JUMP_IF_ANY_BIT, 0, 1, SET_ID),
                refuse,
                allow,
            ],
            ArgumentCondition::OneOf { index, values } => {
                let mut body = vec![(LOAD, 0, 0, argument(index))];
                body.extend(jumps_past(values.iter().copied(), 1));
                body.extend([allow, refuse]);
                body
            }
            ArgumentCondition::Both { first: (first, value), second: (second, values) } => {
                let mut body = vec![
                    (LOAD, 0, 0, argument(first)),
                    (JUMP_EQUAL, 0, values.len() as u8 + 1, value),
                    (LOAD, 0, 0, argument(second)),
                ];
                body.extend(jumps_past(values.iter().copied(), 1));
                body.extend([allow, refuse]);
                body
            }
            ArgumentCondition::Socket => socket(),
            ArgumentCondition::FamilyOf { index } => {
                let mut body = vec![(LOAD, 0, 0, argument(index))];
                body.extend(jumps_past(FAMILIES.iter().map(|family| family.number), 1));
                body.extend([(RETURN, 0, 0, errno(libc::EAFNOSUPPORT)), allow]);
                body
            }
            ArgumentCondition::OfAnother { pid, unless_null } => vec![
                (LOAD, 0, 0, argument(pid)),
                (JUMP_EQUAL, 4, 0, 0),
                (LOAD, 0, 0, argument(unless_null)),
                (JUMP_EQUAL, 0, 3, 0),
                (LOAD, 0, 0, argument(unless_null) + 4),
                (JUMP_EQUAL, 0, 1, 0),
                allow,
                refuse,
            ],
            ArgumentCondition::OfSupervisorOrUser { which, user, who } => vec![
                (LOAD, 0, 0, argument(which)),
                (JUMP_EQUAL, 2, 0, user),
                (LOAD, 0, 0, argument(who)),
                (JUMP_EQUAL, 0, 1, SUPERVISOR),
                refuse,
                allow,
            ],
            ArgumentCondition::OneOfWithBit { index, values: [first, second, third], data, bit } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_EQUAL, 2, 0, first),
                (JUMP_EQUAL, 1, 0, second),
                (JUMP_EQUAL, 0, 3, third),
                (LOAD, 0, 0, argument(data)),
                (JUMP_IF_ANY_BIT, 0, 1, bit),
                refuse,
                allow,
            ],
            ArgumentCondition::OtherThan { index, values: [first, second], mask } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_EQUAL, 2, 0, first),
                (AND, 0, 0, mask),
                (JUMP_EQUAL, 0, 1, second),
                allow,
                refuse,
            ],
        };
        self.push(JUMP_EQUAL, 0, body.len() as u8, number(call));
        for (code, if_true, if_false, value) in body {
            self.push(code, if_true, if_false, value);
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// One jump for each value, past the `instructions` behind the last of them.
fn jumps_past(
    values: impl ExactSizeIterator<Item = u32>,
    instructions: u8,
) -> impl Iterator<Item = Instruction> {
    let count = values.len() as u8;
    values.zip(1..).map(move |(value, nth)| (JUMP_EQUAL, count - nth + instructions, 0, value))
}

/// See [`ArgumentCondition::Socket`]. Families with the same protocols share the part that compares them.
fn socket() -> Vec<Instruction> {
    let mut parts: Vec<(&[Protocol], Vec<Instruction>)> = Vec::new();
    for family in FAMILIES.iter().filter(|family| !family.protocols.is_empty()) {
        if !parts.iter().any(|(protocols, _)| *protocols == family.protocols) {
            let mut part = vec![(LOAD, 0, 0, argument(2))];
            part.extend(jumps_past(family.protocols.iter().map(|protocol| protocol.number), 1));
            part.extend([(RETURN, 0, 0, errno(libc::EPROTONOSUPPORT)), (RETURN, 0, 0, ALLOW)]);
            parts.push((family.protocols, part));
        }
    }
    let mut body = vec![(LOAD, 0, 0, argument(0))];
    for (index, family) in FAMILIES.iter().enumerate() {
        let before = parts.iter().take_while(|(protocols, _)| *protocols != family.protocols);
        // Past the families behind this one, the refusal, and the parts before its own; with all protocols past all.
        let skipped = FAMILIES.len() - 1 - index + 1 + before.map(|(_, part)| part.len()).sum::<usize>();
        body.push((JUMP_EQUAL, skipped as u8, 0, family.number));
    }
    body.push((RETURN, 0, 0, errno(libc::EAFNOSUPPORT)));
    body.extend(parts.into_iter().flat_map(|(_, part)| part));
    body.push((RETURN, 0, 0, ALLOW));
    body
}

fn number(call: c_long) -> u32 {
    // Call numbers are small and positive; one that were not could never match.
    u32::try_from(call).unwrap_or(u32::MAX)
}
