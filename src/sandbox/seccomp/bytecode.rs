//! Classic BPF for the system call filter: instructions, and how a rule becomes instructions. It knows no call by
//! name.

use libc::c_long;

use super::conditional::{
    ArgumentCondition, CREATES, ConditionalRule, FAMILIES, INET_PROTOCOLS, NETLINK_PROTOCOLS, SET_ID,
    SUPERVISOR,
};
use super::notified::NotifiedCall;

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
    pub(super) fn notify(&mut self, notified: &NotifiedCall) {
        let instructions = 2 * notified.unless.len() as u8 + 2;
        self.push(JUMP_EQUAL, 0, instructions, number(notified.call));
        for (index, word) in (0..).zip(&notified.unless) {
            self.push(LOAD, 0, 0, argument(notified.first_register) + 4 * index);
            let to_notify = instructions - 2 * index as u8 - 3;
            self.push(JUMP_EQUAL, 0, to_notify, *word);
        }
        self.push(RETURN, 0, 0, ALLOW);
        self.push(RETURN, 0, 0, NOTIFY);
    }

    /// The call's number is in the accumulator before and, when the rule is for another call, after.
    pub(super) fn rule(&mut self, rule: &ConditionalRule) {
        let refuse = (RETURN, 0, 0, errno(libc::EPERM));
        let allow = (RETURN, 0, 0, ALLOW);
        let body: Vec<Instruction> = match rule.when {
            ArgumentCondition::AnyBit { index, bits } => {
                vec![(LOAD, 0, 0, argument(index)), (JUMP_IF_ANY_BIT, 0, 1, bits), refuse, allow]
            }
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
                body.extend(jumps_past(values, 1));
                body.extend([allow, refuse]);
                body
            }
            ArgumentCondition::Both { first: (first, value), second: (second, values) } => {
                let mut body = vec![
                    (LOAD, 0, 0, argument(first)),
                    (JUMP_EQUAL, 0, values.len() as u8 + 1, value),
                    (LOAD, 0, 0, argument(second)),
                ];
                body.extend(jumps_past(values, 1));
                body.extend([allow, refuse]);
                body
            }
            ArgumentCondition::Socket => socket(),
            ArgumentCondition::FamilyOf { index } => vec![
                (LOAD, 0, 0, argument(index)),
                (JUMP_EQUAL, 4, 0, FAMILIES[0]),
                (JUMP_EQUAL, 3, 0, FAMILIES[1]),
                (JUMP_EQUAL, 2, 0, FAMILIES[2]),
                (JUMP_EQUAL, 1, 0, FAMILIES[3]),
                (RETURN, 0, 0, errno(libc::EAFNOSUPPORT)),
                allow,
            ],
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
        self.push(JUMP_EQUAL, 0, body.len() as u8, number(rule.call));
        for (code, if_true, if_false, value) in body {
            self.push(code, if_true, if_false, value);
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// One jump for each value, past the `instructions` behind the last of them.
fn jumps_past(values: &[u32], instructions: u8) -> impl Iterator<Item = Instruction> {
    let count = values.len() as u8;
    values.iter().zip(1..).map(move |(value, nth)| (JUMP_EQUAL, count - nth + instructions, 0, *value))
}

/// See [`ArgumentCondition::Socket`]. Built from its end, because the length of a jump depends on what it skips.
fn socket() -> Vec<Instruction> {
    let [unix, inet, inet6, netlink] = FAMILIES;
    let (protocol, refused) = ((LOAD, 0, 0, argument(2)), (RETURN, 0, 0, errno(libc::EPROTONOSUPPORT)));
    let allow = (RETURN, 0, 0, ALLOW);
    let of = |protocols: &[u32]| {
        let mut part = vec![protocol];
        part.extend(jumps_past(protocols, 1));
        part.extend([refused, allow]);
        part
    };
    let (of_inet, of_netlink) = (of(&INET_PROTOCOLS), of(&NETLINK_PROTOCOLS));
    let (past_inet, past_both) = (of_inet.len() as u8, (of_inet.len() + of_netlink.len()) as u8);
    let mut body = vec![
        (LOAD, 0, 0, argument(0)),
        (JUMP_EQUAL, 4, 0, inet),
        (JUMP_EQUAL, 3, 0, inet6),
        (JUMP_EQUAL, 2 + past_inet, 0, netlink),
        (JUMP_EQUAL, 1 + past_both, 0, unix),
        (RETURN, 0, 0, errno(libc::EAFNOSUPPORT)),
    ];
    body.extend(of_inet);
    body.extend(of_netlink);
    body.push(allow);
    body
}

fn number(call: c_long) -> u32 {
    // Call numbers are small and positive; one that were not could never match.
    u32::try_from(call).unwrap_or(u32::MAX)
}
