# What the ranks of a run say to each other; it knows nothing of models (docs/architecture.md, rank 8).
set(distributed ${CMAKE_CURRENT_LIST_DIR})
stepscope_stage(gpt2_distributed RANK 8
  SOURCES ${distributed}/communicator.cpp ${distributed}/staged_communicator.cpp ${distributed}/peer_actions.cpp
          ${distributed}/discover.cpp ${distributed}/sockets.cpp ${distributed}/rendezvous.cpp ${distributed}/data_links.cpp
          ${distributed}/watch.cpp ${distributed}/rank_page.cpp ${distributed}/socket_channel.cpp ${distributed}/identity.cpp
          ${distributed}/agreement.cpp ${distributed}/launcher.cpp
  LINKS base PUBLIC_LIBS fmt::fmt PRIVATE_LIBS Threads::Threads)
