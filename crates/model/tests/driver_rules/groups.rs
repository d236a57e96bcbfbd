//! Range groups (facts 4.9).

use super::*;

const START: Nanos = Nanos::micros(100_000);
const LATER: Nanos = Nanos::micros(200_000);
const LAST: Nanos = Nanos::micros(300_000);

/// A node whose GPU holds four blocks, which are there, and a group that does not migrate.
fn with_group() -> (UnifiedMemory, Group) {
    let mut mem = node(4);
    mem.migrate(blocks(0, 4), ON_GPU, Nanos::ZERO).unwrap();
    let group = mem.make_group();
    mem.set_migratable(group, false).unwrap();
    notices(&mut mem);
    (mem, group)
}

fn prefer(mem: &mut UnifiedMemory, range: AddrRange, place: Option<Place>) {
    mem.advise(range, Advice::Prefer(place), Nanos::ZERO).unwrap();
}

#[test]
fn who_joins_goes_home_and_is_waited_for_and_is_not_entered_there() {
    let (mut mem, group) = with_group();
    prefer(&mut mem, blocks(0, 3), Some(Place::Host));
    let moved = mem.join(blocks(0, 3), group, START).unwrap();
    let told = notices(&mut mem);
    let copies: Vec<_> = told
        .iter()
        .map(|notice| match *notice {
            Notice::Migration {
                range, from: ON_GPU, to: Place::Host, cause: MigrationCause::Coherence, end, ..
            } => (range, end),
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(copies.iter().map(|(range, _)| *range).collect::<Vec<_>>(), [blocks(0, 1), blocks(1, 1), blocks(2, 1)]);
    assert_eq!((moved.done, moved.ordered, moved.skipped), (copies[2].1 + AWAIT, copies[2].1 + AWAIT, false));
    assert_eq!(resident(&mem), [3]);
    // Where it is preferred no more it leaves the group, and comes back without an unmapping.
    prefer(&mut mem, blocks(0, 3), None);
    let back = mem.migrate(blocks(0, 1), ON_GPU, LATER).unwrap();
    assert_eq!((back.ordered, back.skipped), (LATER + CALL + BLOCK, false));
    assert_eq!(resident(&mem), [0, 3]);
}

#[test]
fn who_is_home_already_loses_its_entries() {
    let (mut mem, group) = with_group();
    mem.migrate(blocks(0, 1), Place::Host, Nanos::ZERO).unwrap();
    prefer(&mut mem, blocks(0, 1), Some(Place::Host));
    let moved = mem.join(blocks(0, 1), group, START).unwrap();
    assert_eq!(moved.done, START + CALL + BLOCK + UNMAP);
    let again = mem.join(blocks(0, 1), group, LATER).unwrap();
    assert_eq!(again.done, LATER + CALL + BLOCK);
}

#[test]
fn a_migration_passes_members_by_and_says_so_unless_it_goes_where_they_are_preferred() {
    let (mut mem, group) = with_group();
    prefer(&mut mem, blocks(0, 1), Some(Place::Host));
    mem.join(blocks(0, 1), group, START).unwrap();
    // Block 1 goes to the host, and is not entered, as the driver gives up after its first pass.
    notices(&mut mem);
    let both = mem.migrate(blocks(0, 2), ON_GPU, START).unwrap();
    assert!(both.skipped && resident(&mem) == [1, 2, 3]);
    let home = mem.migrate(blocks(0, 2), Place::Host, LATER).unwrap();
    assert!(!home.skipped && resident(&mem) == [2, 3]);
    let copied = notices(&mut mem).last().unwrap().at();
    assert_eq!(home.done, copied + ENTER + FLUSH, "only the one that is no member");
    // Its group may migrate again.
    mem.set_migratable(group, true).unwrap();
    assert!(!mem.migrate(blocks(0, 2), ON_GPU, LAST).unwrap().skipped);
    assert_eq!(resident(&mem), [0, 1, 2, 3]);
}

#[test]
fn what_was_passed_by_keeps_the_rest_from_being_entered() {
    let (mut mem, group) = with_group();
    prefer(&mut mem, blocks(0, 1), Some(ON_GPU));
    mem.join(blocks(0, 1), group, START).unwrap();
    let home = mem.migrate(blocks(0, 2), Place::Host, LATER).unwrap();
    assert!(home.skipped && resident(&mem) == [0, 2, 3]);
    assert_eq!(home.done, notices(&mut mem).last().unwrap().at() + FLUSH);
}

#[test]
fn a_group_that_is_told_to_stay_gathers_its_members_up_to_the_first_that_cannot() {
    let (mut mem, group) = with_group();
    mem.set_migratable(group, true).unwrap();
    prefer(&mut mem, blocks(0, 1), Some(Place::Host));
    mem.join(blocks(0, 3), group, START).unwrap();
    assert_eq!(
        resident(&mem),
        [0, 1, 2, 3],
        "who joins a group that migrates stays where it is, and need not be preferred"
    );
    mem.set_migratable(group, false).unwrap();
    assert_eq!(mem.gather(group, START), Err(ModelError::Unpreferred { range: blocks(1, 1) }));
    assert_eq!(resident(&mem), [1, 2, 3]);
    prefer(&mut mem, blocks(1, 1), Some(Place::Host));
    assert_eq!(resident(&mem), [2, 3], "it is a member, and the group does not migrate");
    mem.set_migratable(group, true).unwrap();
    prefer(&mut mem, blocks(2, 1), Some(ON_GPU));
    mem.set_migratable(group, false).unwrap();
    assert_eq!(mem.gather(group, START), Err(ModelError::Stays { range: blocks(2, 1) }));
    assert_eq!(
        mem.advise(blocks(2, 1), Advice::Prefer(Some(ON_GPU)), START),
        Err(ModelError::Stays { range: blocks(2, 1) })
    );
}

#[test]
fn what_is_refused_changes_nothing() {
    let (mut mem, group) = with_group();
    let none = Group(group.0 + 1);
    let nobody = ModelError::NoGroup { group: none };
    assert_eq!(mem.join(blocks(0, 1), none, START), Err(nobody));
    assert_eq!((mem.end_group(none), mem.set_migratable(none, true)), (Err(nobody), Err(nobody)));
    prefer(&mut mem, blocks(0, 1), Some(Place::Host));
    assert_eq!(mem.join(blocks(0, 2), group, START), Err(ModelError::Unpreferred { range: blocks(0, 2) }));
    let (outside, part) = (blocks(15, 2), pages(0, 0, 5));
    assert_eq!(mem.join(outside, group, START), Err(ModelError::NotManaged { range: outside }));
    assert_eq!(mem.join(part, group, START), Err(ModelError::PartOfBlock { range: part }));
    assert!(!mem.migrate(blocks(0, 2), Place::Host, START).unwrap().skipped, "nobody is a member");
}

#[test]
fn a_join_for_which_the_host_has_no_room_leaves_members() {
    let options = Options { host_memory: Some(Bytes::mib(3)), ..Options::default() };
    let mut mem = node_with(options);
    mem.migrate(blocks(0, 2), ON_GPU, Nanos::ZERO).unwrap();
    let group = mem.make_group();
    mem.set_migratable(group, false).unwrap();
    prefer(&mut mem, blocks(0, 2), Some(Place::Host));
    let refused = mem.join(blocks(0, 2), group, START).unwrap_err();
    assert!(matches!(refused, ModelError::OutOfMemory { place: Place::Host, .. }), "{refused}");
    assert_eq!(resident(&mem), [1], "the first had room");
    assert!(mem.migrate(blocks(1, 1), ON_GPU, START).unwrap().skipped);
    prefer(&mut mem, blocks(0, 2), None);
    assert!(!mem.migrate(blocks(0, 2), ON_GPU, START).unwrap().skipped);
}

#[test]
fn memberships_end_with_the_group_with_the_range_and_by_joining_none() {
    let (mut mem, group) = with_group();
    let skips = |mem: &mut UnifiedMemory| mem.migrate(blocks(0, 1), ON_GPU, START).unwrap().skipped;
    prefer(&mut mem, blocks(0, 1), Some(Place::Host));
    mem.join(blocks(0, 1), group, START).unwrap();
    assert!(skips(&mut mem));
    mem.join(blocks(0, 1), Group::NONE, START).unwrap();
    assert!(!skips(&mut mem));
    mem.join(blocks(0, 1), group, START).unwrap();
    mem.unmap_managed(blocks(0, 16)).unwrap();
    assert_eq!(mem.gather(group, LAST).unwrap().done, LAST + CALL, "nobody");
    mem.map_managed(blocks(0, 16)).unwrap();
    assert!(!skips(&mut mem));
    assert_eq!(
        mem.join(blocks(0, 1), group, START),
        Err(ModelError::Unpreferred { range: blocks(0, 1) }),
        "nor is it preferred"
    );
    prefer(&mut mem, blocks(0, 1), Some(Place::Host));
    mem.join(blocks(0, 1), group, START).unwrap();
    mem.end_group(group).unwrap();
    assert!(!skips(&mut mem));
    assert_eq!(mem.make_group(), Group(group.0 + 1), "numbers do not come twice");
}

#[test]
fn a_join_waits_for_migrations_that_wait_and_those_that_do_not_wait_let_it_in() {
    let (mut mem, _) = with_group();
    let moving = mem.begin(blocks(5, 1), ON_GPU, START).unwrap();
    let joined = mem.join(blocks(5, 1), Group::NONE, START).unwrap();
    assert_eq!(joined.done, moving.ordered + CALL);
    let moving = mem.migrate(blocks(6, 1), ON_GPU, LATER).unwrap();
    let joined = mem.join(blocks(6, 1), Group::NONE, LATER).unwrap();
    assert!(moving.done > moving.ordered + FLUSH);
    assert_eq!(joined.done, moving.done - FLUSH + CALL, "it tells of moves when it has let go");
}

#[test]
fn who_prefers_the_host_no_more_has_all_pages_marked_that_it_has() {
    let (mut mem, group) = with_group();
    prefer(&mut mem, blocks(0, 3), Some(Place::Host));
    mem.join(blocks(0, 2), group, START).unwrap();
    mem.migrate(pages(2, 0, 128), Place::Host, START).unwrap();
    let ended = mem.advise(blocks(0, 4), Advice::Prefer(None), LATER).unwrap();
    assert_eq!(ended, LATER + CALL + Nanos(2 * MARK + MARK / 4), "nothing of the last is there");
    let again = mem.advise(blocks(0, 4), Advice::Prefer(None), LAST).unwrap();
    assert_eq!(again, LAST + CALL, "it is not preferred");
}
