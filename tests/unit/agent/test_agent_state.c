/* SPDX-License-Identifier: MIT */
#include "agent/agent_state.h"

#include <check.h>

#include "tests/worlds/check_main.h"

/*
 * Every event in every state, against a table written from the other side: for each
 * event, the act and the next state in IDLE, RUNNING, FINISHED, STOPPING, ENDING, OVER.
 */
#define NOTHING(state)                                                                 \
    {                                                                                  \
        AGENT_ACT_NONE, AGENT_##state                                                  \
    }
#define DO(act, state)                                                                 \
    {                                                                                  \
        AGENT_ACT_##act, AGENT_##state                                                 \
    }

static const struct agent_edge expected[AGENT_EVENT_COUNT][AGENT_STATE_COUNT] = {
    [AGENT_EV_START] = { DO(START, RUNNING), NOTHING(RUNNING), NOTHING(FINISHED),
                         NOTHING(STOPPING), NOTHING(ENDING), NOTHING(OVER) },
    [AGENT_EV_STOP] = { DO(REPORT_STOPPED, IDLE), DO(STOP, STOPPING),
                        DO(REPORT_STOPPED, IDLE), DO(STOP, STOPPING), NOTHING(ENDING),
                        NOTHING(OVER) },
    [AGENT_EV_DONE] = { DO(LEAVE, OVER), DO(END, ENDING), DO(LEAVE, OVER),
                        DO(END, ENDING), NOTHING(ENDING), NOTHING(OVER) },
    [AGENT_EV_REFUSED] = { DO(LEAVE, OVER), DO(END, ENDING), DO(LEAVE, OVER),
                           DO(END, ENDING), NOTHING(ENDING), NOTHING(OVER) },
    [AGENT_EV_ABANDONED] = { DO(LEAVE, OVER), DO(END, ENDING), DO(LEAVE, OVER),
                             DO(END, ENDING), NOTHING(ENDING), NOTHING(OVER) },
    [AGENT_EV_FAILED] = { NOTHING(IDLE), DO(REPORT_FAILED, RUNNING), NOTHING(FINISHED),
                          DO(REPORT_FAILED, STOPPING), NOTHING(ENDING), NOTHING(OVER) },
    [AGENT_EV_ALL_EXITED] = { NOTHING(IDLE), DO(REPORT_FINISHED, FINISHED),
                              NOTHING(FINISHED), NOTHING(STOPPING), DO(LEAVE, OVER),
                              NOTHING(OVER) },
    [AGENT_EV_ALL_STOPPED] = { NOTHING(IDLE), NOTHING(RUNNING), NOTHING(FINISHED),
                               DO(REPORT_STOPPED, IDLE), DO(LEAVE, OVER),
                               NOTHING(OVER) },
    [AGENT_EV_GUARD_DIED] = { NOTHING(IDLE), DO(REPORT_GUARD_DIED, IDLE),
                              NOTHING(FINISHED), DO(REPORT_STOPPED, IDLE),
                              DO(LEAVE, OVER), NOTHING(OVER) },
    [AGENT_EV_GUARD_LOST] = { DO(LEAVE, OVER), DO(LEAVE, OVER), DO(LEAVE, OVER),
                              DO(LEAVE, OVER), DO(LEAVE, OVER), NOTHING(OVER) },
};

TEST_LOOP(every_event_in_every_state_does_what_is_written, 0,
          AGENT_STATE_COUNT *AGENT_EVENT_COUNT)
{
    enum agent_event event = (enum agent_event)(_i / AGENT_STATE_COUNT);
    enum agent_state state = (enum agent_state)(_i % AGENT_STATE_COUNT);
    struct agent_edge edge = agent_edge(state, event);

    ck_assert_msg(edge.act == expected[event][state].act &&
                      edge.to == expected[event][state].to,
                  "%s in %s: act %d, to %s", agent_event_name(event),
                  agent_state_name(state), edge.act, agent_state_name(edge.to));
}
