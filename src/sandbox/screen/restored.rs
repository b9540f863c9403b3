//! A screen that is restored from its picture is the same screen: checked with the emulator.

use proptest::prelude::*;

use super::emulator::Emulator;
use crate::display::{continuation::Continuation, picture::Picture, restore, size::ScreenSize};

fn emulator(columns: u32, rows: u32, output: &[u8]) -> Emulator {
    let mut emulator = Emulator::new(ScreenSize::new(columns, rows).unwrap());
    emulator.advance(output);
    emulator
}

/// What a second emulator shows that was sent what restores the first one's screen.
fn restored(emulator: &mut Emulator) -> (Picture, Picture) {
    let first = emulator.picture();
    let second = restored_emulator(emulator);
    let mut second = second.picture();
    // Not of what is shown, or of no picture.
    second.offset = first.offset;
    second.scrollback_rows = first.scrollback_rows;
    second.bells = first.bells;
    (first, second)
}

/// Another emulator that was sent what restores the first one's screen.
fn restored_emulator(emulator: &mut Emulator) -> Emulator {
    let picture = emulator.picture();
    let continuation = emulator.continuation(picture.offset);
    let size = picture.size;
    let encoded = continuation.expect("it does not fail").encode(size);
    let continuation = Continuation::decode(&encoded, size).expect("it is of this screen");
    let mut restored = Emulator::new(size);
    restored.advance(&restore::sequences(&picture, Some(&continuation)));
    restored
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
        let (first, second) = restored(&mut emulator(80, 24, output));
        let rows = |picture: &Picture| -> Vec<_> {
            picture.rows.iter().map(|row| (row.runs(), row.text())).collect()
        };
        assert_eq!(rows(&first), rows(&second), "{:?}", String::from_utf8_lossy(output));
        assert_eq!((first.cursor, first.modes, &first.title), (second.cursor, second.modes, &second.title));
    }
}

#[test]
fn a_line_of_several_rows_is_one_line_on_a_restored_screen() {
    let mut first =
        emulator(10, 6, "0123456789abcdefghij\r\nshort\r\n\x1b[31m日本語日本語日\x1b[m".as_bytes());
    let mut second = restored_emulator(&mut first);
    for emulator in [&mut first, &mut second] {
        emulator.resize(ScreenSize::new(30, 6).unwrap());
    }
    // A screen that was cleared keeps an empty row above it.
    let lines = |emulator: &Emulator| {
        let rows = emulator.picture().rows.into_iter().map(|row| row.text());
        rows.filter(|row| !row.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(lines(&first), lines(&second));
    assert!(lines(&second).iter().any(|line| line == "0123456789abcdefghij"), "{:?}", lines(&second));
}

/// What goes with a screen, with the text beneath it in place of its cells.
fn outline(emulator: &mut Emulator) -> (Continuation, Vec<String>) {
    let mut continuation = emulator.continuation(0).expect("it does not fail");
    let mut text = Vec::new();
    if let Some(beneath) = &mut continuation.beneath {
        text = beneath.rows.drain(..).map(|row| format!("{:?}", row.runs())).collect();
    }
    (continuation, text)
}

proptest! {
    #[test]
    fn any_screen_is_restored_with_its_text_cursor_and_modes(
        pieces in prop::collection::vec(prop_oneof![
            "\x1b\\[[0-9;?]{0,6}[@-~]".prop_map(String::into_bytes),
            "[a-z日👍\t\r\n]{0,20}".prop_map(String::into_bytes),
        ], 0..30),
    ) {
        let (first, second) = restored(&mut emulator(40, 8, &pieces.concat()));
        let text = |picture: &Picture| picture.rows.iter().map(|row| row.text()).collect::<Vec<_>>();
        prop_assert_eq!(text(&first), text(&second));
        prop_assert_eq!((first.cursor, first.modes), (second.cursor, second.modes));
    }

    #[test]
    fn what_is_written_next_looks_the_same_on_a_restored_screen(
        before in prop::collection::vec(written(), 0..30), after in prop::collection::vec(written(), 0..30),
    ) {
        let mut first = emulator(24, 8, &before.concat());
        let mut second = restored_emulator(&mut first);
        for emulator in [&mut first, &mut second] {
            emulator.advance(&after.concat());
        }
        let (one, other) = (first.picture(), second.picture());
        let rows = |picture: &Picture| picture.rows.iter().map(|row| (row.runs(), row.text())).collect::<Vec<_>>();
        prop_assert_eq!(rows(&one), rows(&other));
        prop_assert_eq!((one.cursor, one.modes), (other.cursor, other.modes));
        prop_assert_eq!(outline(&mut first), outline(&mut second));
    }
}

/// What moves, scrolls, saves, and changes how the next character is shown.
fn written() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z\t\r\n]{0,30}",
        "\x1b\\[[0-9;]{0,4}[ABCDEFGHIJKLMPSTXZ@dfgmrsu]",
        "\x1b\\[\\?(1|6|7|25|47|1047|1048|1049)[hl]",
        "\x1b\\[(4|20)[hl]",
        "\x1b[78DEHM]|\x1b[()][0B]|[\x0e\x0f]",
        "\x1b\\[[0-6] q",
    ]
    .prop_map(String::into_bytes)
}
