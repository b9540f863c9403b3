//! A screen that is restored from its picture is the same screen: checked with the emulator.

use proptest::prelude::*;

use super::emulator::Emulator;
use crate::display::{picture::Picture, restore, size::ScreenSize};

fn emulator(columns: u32, rows: u32, output: &[u8]) -> Emulator {
    let mut emulator = Emulator::new(ScreenSize::new(columns, rows).unwrap());
    emulator.advance(output);
    emulator
}

/// What a second emulator shows that was sent what restores the first one's screen.
fn restored(emulator: &Emulator) -> (Picture, Picture) {
    let first = emulator.picture();
    let mut second = Emulator::new(first.size);
    second.advance(&restore::sequences(&first));
    let mut second = second.picture();
    // Not of what is shown, or of no picture.
    second.offset = first.offset;
    second.scrollback_rows = first.scrollback_rows;
    second.bells = first.bells;
    (first, second)
}

#[test]
fn a_restored_screen_is_the_screen() {
    for output in [
        &b"one\r\ntwo \x1b[1;31mred\x1b[0m \x1b[48;2;1;2;3;4mdeep\x1b[0m\x1b]2;a title\x07"[..],
        "\x1b[?1049h\x1b[2;3H日本e\u{301}👍\x1b[5;20H\x1b[?25l\x1b[?1;2004;1003;1006h\x1b=\x1b[6 q"
            .as_bytes(),
        b"\x1b[24;80Hx\x1b[4h\x1b[?7l\x1b[3;4r\x1b[?6h",
        b"\x1b[7m   \x1b[0m\x1b[1;79Hend",
        // Halves of wide characters: at the end of a row, and next to what was deleted.
        "\x1b[1;79H👍\x1b[1;1H\x1b[4hx".as_bytes(),
        "日本\x1b[1;2H\x1b[P".as_bytes(),
        "日本\x1b[1;1H\x1b[P".as_bytes(),
    ] {
        let (first, second) = restored(&emulator(80, 24, output));
        let rows = |picture: &Picture| -> Vec<_> {
            picture.rows.iter().map(|row| (row.runs(), row.text())).collect()
        };
        assert_eq!(rows(&first), rows(&second), "{:?}", String::from_utf8_lossy(output));
        assert_eq!((first.cursor, first.modes, &first.title), (second.cursor, second.modes, &second.title));
    }
}

proptest! {
    #[test]
    fn any_screen_is_restored_with_its_text_cursor_and_modes(
        pieces in prop::collection::vec(prop_oneof![
            "\x1b\\[[0-9;?]{0,6}[@-~]".prop_map(String::into_bytes),
            "[a-z日👍\t\r\n]{0,20}".prop_map(String::into_bytes),
        ], 0..30),
    ) {
        let (first, second) = restored(&emulator(40, 8, &pieces.concat()));
        let text = |picture: &Picture| picture.rows.iter().map(|row| row.text()).collect::<Vec<_>>();
        prop_assert_eq!(text(&first), text(&second));
        prop_assert_eq!((first.cursor, first.modes), (second.cursor, second.modes));
    }
}
