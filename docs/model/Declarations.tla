---------------------------- MODULE Declarations ----------------------------
(* What keeps an entity type: the view, or payloads. First events declare    *)
(* it, `outbox attach` does, and `outbox types set` moves it to the view.    *)
(* One document; the view has it all the time.                               *)
EXTENDS Core

CONSTANTS
    Events,   \* sorts of events: "payload", "refresh", "delete"
    Moves     \* `outbox types set TYPE view` may come

VARIABLES kept, revision, seq, index, work, move
vars == <<rows, kept, revision, seq, index, work, move>>

(* Versions of the producers' own, far above the sequence.                 *)
Own(e) == IF e = "payload" THEN 100 ELSE 101
FromView == {1}
FromPayload == {2}

Idle == [at |-> "idle", event |-> "none", token |-> 0, revision |-> 0, kept |-> "nobody", v |-> 0, body |-> Gone]

Init ==
    /\ rows = [e \in Events |-> Row("open")]
    /\ kept = "nobody" /\ revision = 0
    /\ seq = 0
    /\ index = Forgotten
    /\ work = [w \in Workers |-> Idle]
    /\ move = "none"

At(w, step) == work[w].at = step
Sort(e) == CASE e = "payload" -> "payload" [] e = "refresh" -> "view" [] e = "delete" -> "nobody"

Commit(e) ==
    /\ Is(e, "open") /\ rows' = Become(e, "pending")
    /\ UNCHANGED <<kept, revision, seq, index, work, move>>

(* The claim tells the revision.                                           *)
Claim(w, e) ==
    /\ At(w, "idle") /\ Is(e, "pending")
    /\ rows' = Claimed(e)
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "claimed", !.event = e, !.token = rows'[e].claims,
                                                !.revision = revision, !.kept = kept]]
    /\ UNCHANGED <<kept, revision, seq, index, move>>

(* Of a new type: declared by what its document is written from. A delete  *)
(* declares nothing. On conflict nothing happens.                          *)
Declare(w) ==
    /\ At(w, "claimed") /\ work[w].kept = "nobody"
    /\ LET sort == Sort(work[w].event)
       IN /\ kept' = IF kept = "nobody" THEN sort ELSE kept
          /\ work' = [work EXCEPT ![w].at = "declared", ![w].kept = IF Bug = "not read back" THEN sort ELSE "nobody"]
    /\ UNCHANGED <<rows, revision, seq, index, move>>

(* A statement of its own, which sees who was faster.                      *)
ReadBack(w) ==
    /\ \/ At(w, "declared")
       \/ At(w, "claimed") /\ work[w].kept # "nobody"
    /\ work' = [work EXCEPT ![w].at = "sorted", ![w].kept = IF @ = "nobody" THEN kept ELSE @]
    /\ UNCHANGED <<rows, kept, revision, seq, index, move>>

Viewed(w) == work[w].kept = "view"
IsWrong(w) == work[w].event # "delete" /\ Sort(work[w].event) # work[w].kept

(* Read once more where nobody kept the type: a first event raises no      *)
(* revision.                                                               *)
Changed(w) == Bug # "settled under any declaration" /\
    \/ work[w].revision # revision
    \/ work[w].kept = "nobody" /\ kept # "nobody" /\ Bug # "a first declaration is not seen at the settle"

Settle(w, status) == rows' = Settled(work[w].event, work[w].token, IF Changed(w) THEN "pending" ELSE status)

(* An event of the other sort is not sent: it fails, with its remedy.      *)
Refuse(w) ==
    /\ At(w, "sorted") /\ IsWrong(w)
    /\ Settle(w, "failed")
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<kept, revision, seq, index, move>>

Draw(w) ==
    /\ At(w, "sorted") /\ ~IsWrong(w)
    /\ seq' = IF Viewed(w) THEN seq + 1 ELSE seq
    /\ work' = [work EXCEPT ![w].at = "ready",
            ![w].v = IF Viewed(w) THEN seq' ELSE Own(work[w].event),
            ![w].body = IF Viewed(w) THEN FromView ELSE IF work[w].event = "delete" THEN Gone ELSE FromPayload]
    /\ UNCHANGED <<rows, kept, revision, index, move>>

(* A number that was drawn and is behind the index: raised, and done again. *)
Write(w) ==
    /\ At(w, "ready")
    /\ IF Viewed(w) /\ index.v > seq
       THEN seq' = index.v /\ work' = [work EXCEPT ![w].at = "sorted"] /\ UNCHANGED index
       ELSE index' = Written(index, work[w].v, work[w].body) /\ work' = [work EXCEPT ![w].at = "written"] /\ UNCHANGED seq
    /\ UNCHANGED <<rows, kept, revision, move>>

Done(w) ==
    /\ At(w, "written")
    /\ Settle(w, "done")
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<kept, revision, seq, index, move>>

-----------------------------------------------------------------------------
(* A command of a person. `attach` comes only to a type that nobody keeps. *)
Attach ==
    /\ kept = "nobody"
    /\ kept' = "view" /\ revision' = revision + 1
    /\ UNCHANGED <<rows, seq, index, work, move>>

Change ==
    /\ Moves /\ move = "none" /\ kept = "payload"
    /\ kept' = "view" /\ revision' = revision + 1 /\ move' = "changed"
    /\ UNCHANGED <<rows, seq, index, work>>

(* It waits for batches from before: their leases, and their requests.     *)
OlderBatches == {w \in Workers : ~At(w, "idle") /\ work[w].revision < revision}

Fill ==
    /\ move = "changed" /\ (OlderBatches = {} \/ Bug = "batches from before are not waited for")
    /\ seq' = Max(seq, index.v) + 1
    /\ index' = Written(index, seq', FromView)
    /\ move' = "filled"
    /\ UNCHANGED <<rows, kept, revision, work>>

-----------------------------------------------------------------------------
Die(w) ==
    /\ ~At(w, "idle") /\ Holds(work[w].event, work[w].token) /\ MayComeBack(work[w].event)
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, kept, revision, seq, index, move>>

Reclaim(e) == Reclaimed(e) /\ UNCHANGED <<kept, revision, seq, index, work, move>>

Quiet ==
    /\ \A e \in Events : rows[e].status \in {"done", "failed"}
    /\ \A w \in Workers : At(w, "idle")
    /\ move # "changed"

Step(w) ==
    \/ (\E e \in Events : Claim(w, e)) \/ Declare(w) \/ ReadBack(w) \/ Refuse(w) \/ Draw(w) \/ Write(w) \/ Done(w) \/ Die(w)

Next ==
    \/ \E e \in Events : Commit(e) \/ Reclaim(e)
    \/ \E w \in Workers : Step(w)
    \/ Attach \/ Change \/ Fill
    \/ Quiet /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

Finished(e) == e \in Events /\ Is(e, "done")
OneTruth == Quiet => CASE
    kept = "view" -> move = "filled" \/ (\E e \in Events : Finished(e)) => index.body = FromView
    [] kept = "payload" -> index.body = IF Finished("delete") THEN Gone ELSE FromPayload
    [] OTHER -> index.body = Gone
AllSettled == <>Quiet
=============================================================================
