------------------------------- MODULE Rebuild -------------------------------
(* A rebuild with two targets: a new index beside the one in use. Workers   *)
(* write to both as soon as they know of it; then the copier fills the new  *)
(* one from the view, the alias is swapped, and the old one is written to   *)
(* until a person ends it, so that the way back stays open.                 *)
EXTENDS Core

CONSTANT Events  \* each with a change of the one document

VARIABLES seen, seq, old, new, alias, step, knows, asleep, work, copy
vars == <<rows, seen, seq, old, new, alias, step, knows, asleep, work, copy>>

Steps == <<"created", "mirroring", "copying", "copied", "swapped">>
Idle == [at |-> "idle", event |-> 0, token |-> 0, v |-> 0, body |-> {}, mirrors |-> FALSE]

Init ==
    /\ rows = [e \in Events |-> Row("open")]
    /\ seen = {} /\ seq = 0
    /\ old = [v |-> 0, body |-> {}] /\ new = Forgotten
    /\ alias = "old" /\ step = "created"
    /\ knows = [w \in Workers |-> FALSE]   \* that it is to write to both
    /\ asleep = [w \in Workers |-> FALSE]  \* for so long that it counts as gone, and knows it when it wakes
    /\ work = [w \in Workers |-> Idle]
    /\ copy = [at |-> "idle", v |-> 0, body |-> {}]

At(w, place) == work[w].at = place
Rest == <<alias, step, knows, asleep, copy>>

Commit(e) ==
    /\ Is(e, "open") /\ rows' = Become(e, "pending") /\ seen' = seen \cup {e}
    /\ UNCHANGED <<seq, old, new, work>> /\ UNCHANGED Rest

Awake(w) == ~asleep[w]

Claim(w, e) ==
    /\ Awake(w) /\ At(w, "idle") /\ Is(e, "pending")
    /\ rows' = Claimed(e)
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "claimed", !.event = e, !.token = rows'[e].claims]]
    /\ UNCHANGED <<seen, seq, old, new>> /\ UNCHANGED Rest

Draw(w) ==
    /\ Awake(w) /\ At(w, "claimed")
    /\ seq' = seq + 1 /\ work' = [work EXCEPT ![w].at = "drawn", ![w].v = seq']
    /\ UNCHANGED <<rows, seen, old, new>> /\ UNCHANGED Rest

Read(w) ==
    /\ Awake(w) /\ At(w, "drawn")
    /\ work' = [work EXCEPT ![w].at = "ready", ![w].body = seen]
    /\ UNCHANGED <<rows, seen, seq, old, new>> /\ UNCHANGED Rest

(* To the target, by its alias; then what it has accepted to the other one. *)
InUse(w, document) == Written(document, work[w].v, work[w].body)

Write(w) ==
    /\ Awake(w) /\ At(w, "ready")
    /\ old' = IF alias = "old" THEN InUse(w, old) ELSE old
    /\ new' = IF alias = "new" THEN InUse(w, new) ELSE new
    /\ work' = [work EXCEPT ![w].at = "written", ![w].mirrors = knows[w]]
    /\ UNCHANGED <<rows, seen, seq>> /\ UNCHANGED Rest

Mirror(w) ==
    /\ Awake(w) /\ At(w, "written")
    /\ old' = IF work[w].mirrors THEN InUse(w, old) ELSE old
    /\ new' = IF work[w].mirrors THEN InUse(w, new) ELSE new
    /\ work' = [work EXCEPT ![w].at = "both"]
    /\ UNCHANGED <<rows, seen, seq>> /\ UNCHANGED Rest

Done(w) ==
    /\ Awake(w) /\ At(w, "both")
    /\ rows' = Settled(work[w].event, work[w].token, "done")
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<seen, seq, old, new>> /\ UNCHANGED Rest

-----------------------------------------------------------------------------
(* Every second, and before a write if it slept.                            *)
Confirm(w) ==
    /\ Awake(w) /\ knows[w] # (step # "created")
    /\ knows' = [knows EXCEPT ![w] = step # "created"]
    /\ UNCHANGED <<rows, seen, seq, old, new, alias, step, asleep, work, copy>>

Sleep(w) ==
    /\ Awake(w) /\ asleep' = [asleep EXCEPT ![w] = TRUE]
    /\ (\E e \in Events : Is(e, "open"))   \* once is enough
    /\ UNCHANGED <<rows, seen, seq, old, new, alias, step, knows, work, copy>>

Wake(w) ==
    /\ asleep[w] /\ asleep' = [asleep EXCEPT ![w] = FALSE]
    /\ knows' = IF Bug = "who slept does not ask again" THEN knows ELSE [knows EXCEPT ![w] = step # "created"]
    /\ UNCHANGED <<rows, seen, seq, old, new, alias, step, work, copy>>

-----------------------------------------------------------------------------
(* The rebuild. The copying begins when every worker that is not asleep has *)
(* confirmed.                                                               *)
Confirmed == \A w \in Workers : knows[w] \/ asleep[w]
Begin ==
    /\ step = "created" /\ step' = "mirroring"
    /\ UNCHANGED <<rows, seen, seq, old, new, alias, knows, asleep, work, copy>>

StartCopying ==
    /\ step = "mirroring" /\ step' = "copying"
    /\ Confirmed \/ Bug = "workers are not waited for"
    /\ UNCHANGED <<rows, seen, seq, old, new, alias, knows, asleep, work, copy>>

CopyDraw ==
    /\ step = "copying" /\ copy.at = IF Bug = "the page is read before its draw" THEN "second" ELSE "idle"
    /\ seq' = seq + 1 /\ copy' = [copy EXCEPT !.v = seq', !.at = IF @ = "idle" THEN "second" ELSE "ready"]
    /\ UNCHANGED <<rows, seen, old, new, alias, step, knows, asleep, work>>

CopyRead ==
    /\ step = "copying" /\ copy.at = IF Bug = "the page is read before its draw" THEN "idle" ELSE "second"
    /\ copy' = [copy EXCEPT !.body = seen, !.at = IF @ = "idle" THEN "second" ELSE "ready"]
    /\ UNCHANGED <<rows, seen, seq, old, new, alias, step, knows, asleep, work>>

CopyWrite ==
    /\ copy.at = "ready" /\ copy' = [copy EXCEPT !.at = "over"]
    /\ new' = Written(new, copy.v, copy.body) /\ step' = "copied"
    /\ UNCHANGED <<rows, seen, seq, old, alias, knows, asleep, work>>

Swap ==
    /\ step = "copied" /\ step' = "swapped" /\ alias' = "new"
    /\ UNCHANGED <<rows, seen, seq, old, new, knows, asleep, work, copy>>

-----------------------------------------------------------------------------
Die(w) ==
    /\ ~At(w, "idle")
    /\ Holds(work[w].event, work[w].token) => MayComeBack(work[w].event)
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, seen, seq, old, new>> /\ UNCHANGED Rest

Reclaim(e) == Reclaimed(e) /\ UNCHANGED <<seen, seq, old, new, work>> /\ UNCHANGED Rest

Quiet ==
    /\ \A e \in Events : Is(e, "done")
    /\ \A w \in Workers : At(w, "idle") /\ Awake(w)
    /\ step = "swapped"

Step(w) ==
    \/ (\E e \in Events : Claim(w, e)) \/ Draw(w) \/ Read(w) \/ Write(w) \/ Mirror(w) \/ Done(w)
    \/ Confirm(w) \/ Sleep(w) \/ Wake(w) \/ Die(w)

Next ==
    \/ \E e \in Events : Commit(e) \/ Reclaim(e)
    \/ \E w \in Workers : Step(w)
    \/ Begin \/ StartCopying \/ CopyDraw \/ CopyRead \/ CopyWrite \/ Swap
    \/ Quiet /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

NothingStale == Quiet => new.body = seen
TheWayBackIsOpen == Quiet => old.body = seen
AllSettled == <>Quiet
=============================================================================
